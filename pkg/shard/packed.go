package shard

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxPacked is how many bytes Packed may return: an object of the API has room for a plan
	// twice, and for its other contents.
	MaxPacked = 96 << 10
	// maxUnpacked bounds the size of an unpacked plan: three times the longest.
	maxUnpacked = 4 << 20

	packedPrefix = "gzip:"
)

// packedPlan is what Packed compresses: the plan, with pins and homes given as indexes of Members,
// in decimal digits.
type packedPlan struct {
	Members []string `json:"members,omitempty"`
	Plan    Plan     `json:"plan"`
}

// Packed returns the plan as text for machines, a fraction as long as Document's. ParsePlan is its
// inverse. The error says that the text would be longer than MaxPacked: so many long, different
// names do not fit on a Lease.
func (p Plan) Packed() (string, error) {
	var out packedPlan
	for _, s := range p.Shards() {
		out.Members = append(out.Members, s.Pin, s.Home)
	}
	out.Members = sortedUnique(out.Members, strings.Compare)
	out.Plan = p.withMembers(func(name string) string {
		i, _ := slices.BinarySearch(out.Members, name)
		return strconv.Itoa(i)
	})
	data, err := json.Marshal(out)
	if err != nil {
		return "", err
	}
	packed, err := packText(data)
	if err == nil && len(packed) > MaxPacked {
		err = fmt.Errorf("%d shards take %d bytes when packed: must be at most %d: shorten the names of shards and members, or plan fewer shards",
			len(p.Shards()), len(packed), MaxPacked)
	}
	if err != nil {
		return "", err
	}
	return packed, nil
}

// packText compresses to letters that may stand anywhere.
func packText(data []byte) (string, error) {
	var b strings.Builder
	b.WriteString(packedPrefix)
	encoder := base64.NewEncoder(base64.StdEncoding, &b)
	compressor, err := gzip.NewWriterLevel(encoder, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	_, err = compressor.Write(data)
	if err = errors.Join(err, compressor.Close(), encoder.Close()); err != nil {
		return "", err
	}
	return b.String(), nil
}

// withMembers returns the plan with every pin and home replaced.
func (p Plan) withMembers(replace func(name string) string) Plan {
	return p.WithShards(func(s *Shard) {
		if s.Pin != "" {
			s.Pin = replace(s.Pin)
		}
		if s.Home != "" {
			s.Home = replace(s.Home)
		}
	})
}

// unpackText is the inverse of packText, without the prefix.
func unpackText(text []byte) ([]byte, error) {
	decompressor, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
	if err != nil {
		return nil, fmt.Errorf("plan is not packed as expected: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(decompressor, maxUnpacked+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("plan is not packed as expected: %w", err)
	case len(data) > maxUnpacked:
		return nil, fmt.Errorf("plan takes over %d bytes when unpacked: must not", maxUnpacked)
	}
	return data, nil
}

// unpackPlan reads what follows packedPrefix.
func unpackPlan(text []byte) (Plan, error) {
	data, err := unpackText(text)
	if err != nil {
		return Plan{}, err
	}
	var in packedPlan
	if err := parseStrictly(data, &in); err != nil {
		return Plan{}, err
	}
	unknown := ""
	plan := in.Plan.withMembers(func(index string) string {
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(in.Members) {
			return in.Members[i]
		}
		unknown = index
		return ""
	})
	if unknown != "" {
		return Plan{}, fmt.Errorf("packed plan names member %q: must be an index of %d members", unknown, len(in.Members))
	}
	return plan, nil
}
