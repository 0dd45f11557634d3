package shard

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/flotilla-kube/flotilla/internal/faults"
)

// endOfKeyspace is the text of the bound 2^64, one past the greatest hash. It does not fit into a
// uint64, where 0 stands for it.
const endOfKeyspace = "0x10000000000000000"

// Range is the half-open part [Start, End) of the keyspace.
//
// The zero value is the whole keyspace, see Everything. An empty range cannot be expressed: a Range
// whose End is neither 0 nor greater than its Start is invalid, and NewRange, ParseRange and
// Validate refuse it.
//
// As text, and so in JSON, a Range is the result of String.
type Range struct {
	// Start is the smallest hash in the range.
	Start uint64
	// End is one past the greatest hash in the range; 0 means 2^64, the end of the keyspace.
	End uint64
}

// Everything returns the range that is the whole keyspace: running unsharded is just the case of
// one shard.
func Everything() Range { return Range{} }

// NewRange returns [start, end), where end 0 means 2^64. It returns an error if the range would be
// empty.
func NewRange(start, end uint64) (Range, error) {
	r := Range{Start: start, End: end}
	return r, r.Validate()
}

// Validate returns an error if the range is empty or its bounds are reversed.
func (r Range) Validate() error {
	if r.End != 0 && r.Start >= r.End {
		return fmt.Errorf("range %s: start must be less than end", r)
	}
	return nil
}

// IsEverything reports whether the range is the whole keyspace.
func (r Range) IsEverything() bool { return r == Everything() }

// Contains reports whether the hash lies in the range.
func (r Range) Contains(hash uint64) bool {
	return hash >= r.Start && (r.End == 0 || hash < r.End || faults.RangeOffByOne && hash == r.End)
}

// ContainsNamespace reports whether the namespace with this name lies in the range.
func (r Range) ContainsNamespace(namespace string) bool {
	return r.Contains(Hash(namespace))
}

// Overlaps reports whether some hash lies in both ranges. Ranges that only touch do not overlap.
// Both must be valid.
func (r Range) Overlaps(other Range) bool {
	return (other.End == 0 || r.Start < other.End) && (r.End == 0 || other.Start < r.End)
}

// String returns the two bounds, each as 0x and 16 lower-case hexadecimal digits, joined by a
// hyphen; an End of 2^64 is 0x10000000000000000. The result has 37 or 38 bytes.
func (r Range) String() string {
	start, end := r.bounds()
	return start + "-" + end
}

// Selector returns the value of ListOptions.ShardSelector that makes an API server deliver only
// objects of namespaces in this range. It is never empty, not even for Everything: a server's
// answer to it shows whether the server honours selectors. The range must be valid; the server
// answers 500 to others.
func (r Range) Selector() string {
	start, end := r.bounds()
	return fmt.Sprintf("shardRange(object.metadata.namespace, '%s', '%s')", start, end)
}

func (r Range) bounds() (start, end string) {
	start, end = fmt.Sprintf("0x%016x", r.Start), endOfKeyspace
	if r.End != 0 {
		end = fmt.Sprintf("0x%016x", r.End)
	}
	return start, end
}

// ParseRange is the inverse of String, and accepts only what String returns for a valid range. The
// error names the bound at fault, its value and what is allowed.
func ParseRange(s string) (Range, error) {
	first, second, found := strings.Cut(s, "-")
	if !found {
		return Range{}, fmt.Errorf("range %q: must be two bounds joined by a hyphen, such as %q", s, Everything())
	}
	start, err := parseBound(first)
	if err != nil {
		return Range{}, fmt.Errorf("range %q: start %q: %w", s, first, err)
	}
	var end uint64
	if second != endOfKeyspace {
		if end, err = parseBound(second); err != nil {
			return Range{}, fmt.Errorf("range %q: end %q: %w, or %s", s, second, err, endOfKeyspace)
		}
		if end == 0 {
			return Range{}, fmt.Errorf("range %q: end %q: must be greater than start; the end of the keyspace is %s", s, second, endOfKeyspace)
		}
	}
	return NewRange(start, end)
}

func parseBound(s string) (uint64, error) {
	digits, found := strings.CutPrefix(s, "0x")
	if !found || len(digits) != 16 || strings.Trim(digits, "0123456789abcdef") != "" {
		return 0, fmt.Errorf("must be 0x and 16 lower-case hexadecimal digits")
	}
	return strconv.ParseUint(digits, 16, 64)
}

// MarshalText returns String, or an error if the range is invalid.
func (r Range) MarshalText() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText is ParseRange.
func (r *Range) UnmarshalText(text []byte) error {
	parsed, err := ParseRange(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}
