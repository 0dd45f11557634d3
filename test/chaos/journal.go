package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// hold is the state of a Lease, and when the holder's last sign of life was answered: its last
// write to the Lease, or its member's last heartbeat. Others may write to the Lease too, to ask for
// it.
type hold struct {
	holder  string
	term    int32
	renewed time.Time
	version uint64
	stamp   time.Time // the holder's own, compared only with itself
}

// beat is an incarnation's last heartbeat: when it was answered, and its own stamp.
type beat struct{ answered, stamp time.Time }

// change is a change of a shard's holder.
type change struct {
	lease    string
	from, to string
	at       time.Time
	// lost is set if the claim before was not released: it was taken, or its own holder began a new
	// one.
	lost bool
	// gap is how long the shard was unowned: since the release, or since the last renewal of a lost
	// claim.
	gap time.Duration
	// after is the version of the last known write of the claim before, version that of this
	// change.
	after, version uint64
}

// String returns "<Lease> from <holder> to <holder>".
func (c change) String() string { return fmt.Sprintf("%s from %q to %q", c.lease, c.from, c.to) }

// journal is the state of the audit log so far. A tail feeds it, and all of its methods are safe
// for concurrent use.
type journal struct {
	mu sync.Mutex
	// leases are those in use: of the plan's shards, or the stock one. Leases of other shards are
	// recorded as well.
	leases map[string]shard.ID
	holds  map[string]hold
	// beats are the heartbeats of members, by incarnation.
	beats map[string]beat
	// retired are Leases that were in use once. The time before one is used again is no gap.
	retired map[string]bool
	changes []change
	// members counts writes by member and second; all counts everybody's.
	members  map[string]map[int64]int
	writes   map[shard.ID]map[int64]int
	all      map[int64]int
	total    int
	latest   time.Time
	canaries *latencies
	// leaderLockName is the Lease that the fleet holds besides its own, empty for none; leaderLock
	// is its state.
	leaderLockName    string
	leaderLock        leaderLockState
	leaderLockChanges []leaderLockChange
	// slowest is the longest time that the API server took for a write of a Lease; see takeSlowest.
	slowest time.Duration
	// builds are the members' binaries and versions, according to their last writes.
	builds map[string]string
	// fleetWrites are the times at which the members' writes arrived.
	fleetWrites []time.Time
}

func newJournal(leases map[string]shard.ID, leaderLock string) *journal {
	return &journal{
		leases: leases, leaderLockName: leaderLock, holds: map[string]hold{}, beats: map[string]beat{}, members: map[string]map[int64]int{}, writes: map[shard.ID]map[int64]int{},
		all: map[int64]int{}, builds: map[string]string{}, retired: map[string]bool{}, canaries: newLatencies(),
	}
}

// add records one event of the log.
func (j *journal) add(e *harness.Event) {
	if !e.Succeeded() || !e.Mutating() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.latest = e.StageTimestamp.Time
	switch {
	case e.IsLease():
		j.addLease(e)
	case counts(e):
		j.addWrite(e)
	}
}

func (j *journal) addWrite(e *harness.Event) {
	second := e.StageTimestamp.Unix()
	j.all[second]++
	j.total++
	if isCanary(e) {
		var set appsv1.ReplicaSet
		if e.Answer(&set) == nil {
			j.canaries.add(e, &set)
		}
	}
	if e.Process() == stockName {
		j.count(stockName, second)
		return
	}
	by, ok, err := audit.ParseAgent(e.UserAgent)
	if !ok || err != nil {
		return
	}
	j.fleetWrites = append(j.fleetWrites, e.RequestReceivedTimestamp.Time)
	j.count(leaserecord.MemberOf(by.Member), second)
	j.builds[leaserecord.MemberOf(by.Member)], _, _ = strings.Cut(e.UserAgent, " ")
	if j.writes[by.Shard] == nil {
		j.writes[by.Shard] = map[int64]int{}
	}
	j.writes[by.Shard][second]++
}

func (j *journal) count(member string, second int64) {
	if j.members[member] == nil {
		j.members[member] = map[int64]int{}
	}
	j.members[member][second]++
}

func (j *journal) addLease(e *harness.Event) {
	j.slowest = max(j.slowest, e.StageTimestamp.Sub(e.RequestReceivedTimestamp.Time))
	name := e.ObjectRef.Name
	if name == j.leaderLockName {
		j.addLeaderLock(e)
		return
	}
	if leaserecord.IsMemberLease(fleetName, name) {
		j.addBeat(e)
		return
	}
	before, recorded := j.holds[name]
	before.renewed = j.signOf(before)
	_, planned := j.leases[name]
	if e.Verb == "delete" && (recorded || planned) {
		j.holds[name] = hold{version: before.version, renewed: e.StageTimestamp.Time}
		return
	}
	var lease coordinationv1.Lease
	version := e.Version()
	if version == 0 || e.Answer(&lease) != nil || !recorded && !planned && lease.Labels[leaseapi.ShardLabel] == "" {
		return
	}
	if version <= before.version {
		if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			j.addLateRelease(name, version, e.StageTimestamp.Time)
		}
		return
	}
	now := hold{
		holder: ptr.Deref(lease.Spec.HolderIdentity, ""), term: ptr.Deref(lease.Spec.LeaseTransitions, 0),
		renewed: e.StageTimestamp.Time, version: version, stamp: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time,
	}
	if now.holder == before.holder && now.term == before.term && now.stamp.Equal(before.stamp) {
		now.renewed = before.renewed // others may write it too
	}
	j.holds[name] = now
	if now.holder == before.holder && now.term == before.term {
		return
	}
	c := change{lease: name, from: before.holder, to: now.holder, at: now.renewed, after: before.version, version: version}
	if now.holder != "" && !before.renewed.IsZero() {
		c.gap = now.renewed.Sub(before.renewed)
		c.lost = before.holder != ""
	}
	if now.holder != "" && j.retired[name] {
		c.gap = 0
		delete(j.retired, name)
	}
	j.changes = append(j.changes, c)
}

// addBeat records a write of a member's Lease.
func (j *journal) addBeat(e *harness.Event) {
	var lease coordinationv1.Lease
	if e.Verb == "delete" || e.Answer(&lease) != nil {
		return
	}
	record := leaserecord.From(&lease)
	if record.Holder != "" && !record.RenewTime.Equal(j.beats[record.Holder].stamp) {
		j.beats[record.Holder] = beat{answered: e.StageTimestamp.Time, stamp: record.RenewTime}
	}
}

// signOf returns when the last heartbeat, write or release of a Lease's holder was answered.
func (j *journal) signOf(h hold) time.Time {
	if last := j.beats[h.holder].answered; h.holder != "" && last.After(h.renewed) {
		return last
	}
	return h.renewed
}

// addLateRelease records a release that is logged after the next holder's write. The next holder
// sees the release as soon as it is stored, but a line is written when its request is answered. So
// the claim before was not lost.
func (j *journal) addLateRelease(name string, version uint64, answered time.Time) {
	for i := range j.changes {
		if c := &j.changes[i]; c.lease == name && c.lost && c.after < version && version < c.version {
			c.lost, c.gap = false, max(c.at.Sub(answered), 0)
		}
	}
}

// follow makes snapshots cover these Leases.
func (j *journal) follow(leases map[string]shard.ID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for name := range j.leases {
		if _, stays := leases[name]; !stays {
			j.retired[name] = true
		}
	}
	j.leases = leases
}

// snapshot returns the state of the Leases in use.
func (j *journal) snapshot() map[string]hold {
	j.mu.Lock()
	defer j.mu.Unlock()
	holds := map[string]hold{}
	for name := range j.leases {
		if h, ok := j.holds[name]; ok {
			h.renewed = j.signOf(h)
			holds[name] = h
		}
	}
	return holds
}

// changesSince returns the changes from a time on, in the log's order.
func (j *journal) changesSince(since time.Time) []change {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []change
	for _, c := range j.changes {
		if !c.at.Before(since) {
			found = append(found, c)
		}
	}
	return found
}

// writesOf returns how many writes a member has made in the last whole seconds.
func (j *journal) writesOf(member string, seconds int64) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return recent(j.members[member], j.latest, seconds)
}

// writesFor returns how many writes have been made for a shard in the last whole seconds.
func (j *journal) writesFor(id shard.ID, seconds int64) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return recent(j.writes[id], j.latest, seconds)
}

// buildOf returns the binary and version of a member's last write; empty if it has made none.
func (j *journal) buildOf(member string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.builds[member]
}

// writesEver returns how many writes a member has made since the log began.
func (j *journal) writesEver(member string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, inSecond := range j.members[member] {
		n += inSecond
	}
	return n
}

func recent(bySecond map[int64]int, latest time.Time, seconds int64) int {
	n := 0
	for s := latest.Unix() - seconds; s < latest.Unix(); s++ {
		n += bySecond[s]
	}
	return n
}

// rate returns the writes per second between two times: the mean, and the median second.
func (j *journal) rate(from, to time.Time) (mean float64, median int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var counts []int
	sum := 0
	for s := from.Unix() + 1; s < to.Unix(); s++ {
		counts = append(counts, j.all[s])
		sum += j.all[s]
	}
	if len(counts) == 0 {
		return 0, 0
	}
	slices.Sort(counts)
	return float64(sum) / float64(len(counts)), counts[len(counts)/2]
}

// progressed returns nil if the controller has seen, for every canary, a change made after since.
func (j *journal) progressed(namespaces []string, since time.Time) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.canaries.progressed(namespaces, since)
}

// takeSlowest returns the longest time that a write of a Lease took since the last call. A time
// near the retry period means that the machine's disk or CPU was busy, and that claims lost then
// prove little.
func (j *journal) takeSlowest() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	slowest := j.slowest
	j.slowest = 0
	return slowest
}

// phase names what happens from a time on, for the canaries' latencies.
func (j *journal) phase(name string, from time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.canaries.phase(name, from)
}

// spreads returns the latencies of the canaries by phase.
func (j *journal) spreads() []spread {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.canaries.spreads()
}
