package shard

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxCells is how many cells ParseCensus accepts. One shard's census should have far fewer: 64
	// cells take about 2 KiB of its Lease.
	MaxCells = 1024
	// maxCellNamespaces is how many namespaces ParseCensus accepts in one cell.
	maxCellNamespaces = 1 << 30
)

// String returns the cells as hash:weight:namespaces joined by commas, the hash as 16 lower-case
// hexadecimal digits and the others in decimal. An empty census is an empty string.
func (c Census) String() string {
	var b strings.Builder
	for i, cell := range c {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%016x:%d:%d", cell.Hash, cell.Weight, cell.Namespaces)
	}
	return b.String()
}

// ParseCensus is the inverse of String, and accepts only what String returns for a census of at
// most MaxCells cells. The error names the cell at fault, its value and what is allowed.
func ParseCensus(s string) (Census, error) {
	if s == "" {
		return nil, nil
	}
	if n := strings.Count(s, ",") + 1; n > MaxCells {
		return nil, fmt.Errorf("census has %d cells: must be at most %d", n, MaxCells)
	}
	var c Census
	for text := range strings.SplitSeq(s, ",") {
		cell, err := parseCell(text)
		if err != nil {
			return nil, fmt.Errorf("census cell %d %q: %w", len(c), text, err)
		}
		if n := len(c); n > 0 && c[n-1].Hash >= cell.Hash {
			return nil, fmt.Errorf("census cell %d %q: hash must be greater than %016x, the one before", n, text, c[n-1].Hash)
		}
		c = append(c, cell)
	}
	return c, nil
}

func parseCell(s string) (Cell, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return Cell{}, fmt.Errorf("must be hash, weight and namespaces joined by colons")
	}
	hash, err := parseBound("0x" + parts[0])
	if err != nil {
		return Cell{}, fmt.Errorf("hash %q: must be 16 lower-case hexadecimal digits", parts[0])
	}
	weight, err := parseCount(parts[1], 0, MaxCellWeight)
	if err != nil {
		return Cell{}, fmt.Errorf("weight %q: %w", parts[1], err)
	}
	namespaces, err := parseCount(parts[2], 1, maxCellNamespaces)
	if err != nil {
		return Cell{}, fmt.Errorf("namespaces %q: %w", parts[2], err)
	}
	return Cell{Hash: hash, Weight: weight, Namespaces: int(namespaces)}, nil
}

// parseCount reads a decimal number as fmt writes it: no sign, no leading zeros.
func parseCount(s string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != s || n < least || n > most {
		return 0, fmt.Errorf("must be a decimal number from %d to %d", least, most)
	}
	return n, nil
}
