package status

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// CompareNatural orders names with numbers at their end by these: flotilla-2 before flotilla-10.
func CompareNatural(a, b string) int {
	prefixA, numberA := Ordinal(a)
	prefixB, numberB := Ordinal(b)
	return cmp.Or(strings.Compare(prefixA, prefixB), cmp.Compare(numberA, numberB), strings.Compare(a, b))
}

// Ordinal splits a name such as flotilla-2 into the part before the last hyphen and the number
// after it, -1 if there is none.
func Ordinal(name string) (prefix string, number int) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return name, -1
	}
	n, err := strconv.Atoi(name[i+1:])
	if err != nil || n < 0 || strconv.Itoa(n) != name[i+1:] {
		return name, -1
	}
	return name[:i], n
}

// SortNaturally returns the names in that order.
func SortNaturally(names []string) []string {
	return slices.SortedFunc(slices.Values(names), CompareNatural)
}
