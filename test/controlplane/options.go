package controlplane

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	shardedListAndWatch = "ShardedListAndWatch"

	defaultJobDuration = time.Second
)

// Options configure Start. The zero value is a bare API server with default features.
type Options struct {
	// BinDir holds the binaries. Default: bin/ beside the nearest go.mod at or above the current
	// directory.
	BinDir string

	// Dir is the working directory: certificates, kubeconfigs, logs, audit log, etcd data. It must
	// be empty or not exist, and Stop keeps it. Default: a temporary directory, which Stop removes.
	Dir string

	// KeepDir makes Stop keep the temporary directory too. It has no effect if Dir is set. Default:
	// false.
	KeepDir bool

	// From is a directory with copies of "etcd" and "pki" from the Dir of a stopped control plane.
	// The new one begins with its objects and certificate authority. From is copied and not
	// changed. Default: an empty cluster.
	From string

	// ShardedListAndWatch turns on the API server's feature gate of that name. Default: false, as
	// upstream.
	ShardedListAndWatch bool

	// FeatureGates are further feature gates of the API server only: give the controller manager
	// its own. Default: none.
	FeatureGates map[string]bool

	// APIServerArgs are flags for kube-apiserver, each "--name=value" or "--name". They replace
	// this package's value of the same flag. A flag that is given several times is passed several
	// times. Feature gates go into FeatureGates. Default: none.
	APIServerArgs []string

	// AuditObjects logs each mutating request with its request and response objects, so that the
	// audit log has the resourceVersion of every write. The log becomes several times larger.
	// Default: false, which logs only Leases that way.
	AuditObjects bool

	// AuditArrivals also logs each mutating request on arrival, before it is carried out. The log
	// then has the requests that a server was working on when it was killed. It nearly doubles the
	// lines. Default: false.
	AuditArrivals bool

	// Scheduler starts kube-scheduler. Default: false.
	Scheduler bool

	// Nodes is the number of simulated nodes, node-000 and on, kept alive by kwok. Default: 0, and
	// no kwok.
	Nodes int

	// JobDuration is how long the pods of a Job run before they succeed; up to as much again is
	// added at random. A pod with the annotation RunForAnnotation runs exactly that long. If
	// negative, pods run until deleted. Unused without nodes. Default: 1s.
	JobDuration time.Duration

	// Log receives a line for each step of Start and Stop. Default: no log.
	Log io.Writer
}

// complete checks the options and fills in all defaults except Dir.
func (o Options) complete() (Options, error) {
	if o.Nodes < 0 || o.Nodes > maxNodes {
		return o, fmt.Errorf("controlplane: Nodes is %d, not between 0 and %d", o.Nodes, maxNodes)
	}
	if on, set := o.FeatureGates[shardedListAndWatch]; set && !on && o.ShardedListAndWatch {
		return o, errors.New("controlplane: ShardedListAndWatch is on in Options and off in its FeatureGates")
	}
	for _, arg := range o.APIServerArgs {
		name, _, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "--") {
			return o, fmt.Errorf("controlplane: APIServerArgs: %q is not of the form --name=value", arg)
		}
		if name == "--feature-gates" {
			return o, errors.New("controlplane: APIServerArgs: feature gates belong in FeatureGates")
		}
	}
	if o.JobDuration == 0 {
		o.JobDuration = defaultJobDuration
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.BinDir == "" {
		dir, err := findBinDir()
		if err != nil {
			return o, err
		}
		o.BinDir = dir
	}
	dir, err := filepath.Abs(o.BinDir)
	if err != nil {
		return o, fmt.Errorf("controlplane: BinDir: %w", err)
	}
	o.BinDir = dir
	return o, nil
}

// featureGates is the value of the API server's --feature-gates, in a fixed order; empty for none.
func (o Options) featureGates() string {
	gates := maps.Clone(o.FeatureGates)
	if o.ShardedListAndWatch {
		if gates == nil {
			gates = map[string]bool{}
		}
		gates[shardedListAndWatch] = true
	}
	var values []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		values = append(values, fmt.Sprintf("%s=%t", name, gates[name]))
	}
	return strings.Join(values, ",")
}

// makeDir creates the working directory and reports whether it is a temporary one.
func (o Options) makeDir() (dir string, temporary bool, err error) {
	if o.Dir == "" {
		dir, err = os.MkdirTemp("", "flotilla-controlplane-")
		return dir, true, err
	}
	dir, err = filepath.Abs(o.Dir)
	if err != nil {
		return "", false, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", false, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false, err
	}
	if len(entries) > 0 {
		return "", false, fmt.Errorf("%s is not empty: remove it, or choose another Dir", dir)
	}
	return dir, false, nil
}
