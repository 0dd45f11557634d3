package monitoring

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	interval = 15 * time.Second
	// length is the duration of a scenario.
	length = 90 * time.Minute
)

// fleet holds the samples that Prometheus has scraped of a fleet, by series. NaN stands for a
// missing sample.
type fleet map[string][]float64

var (
	members = []string{"flotilla-0", "flotilla-1", "flotilla-2"}
	// owners maps each shard to the index of the member that owns it in a healthy fleet.
	owners = map[string]int{"namespaces/00": 0, "namespaces/01": 1, "namespaces/02": 2, "cluster/nodes": 0, "cluster/policy": 1}
	nan    = math.NaN()
)

// stockLock is the label of the leader lock, and secondLock that of one which the fleet takes after
// it.
const (
	stockLock  = `lease="kube-controller-manager"`
	secondLock = `lease="cloud-controller-manager"`
)

// healthy returns a fleet of three without any problem, for the whole length.
func healthy() fleet {
	f := fleet{}
	for i, m := range members {
		for id, owner := range owners {
			f.set(m, "flotilla_shard_owned", shardLabels(id), 0, length, is(i == owner))
			f.set(m, "flotilla_shard_desired", shardLabels(id), 0, length, is(i == owner))
			f.set(m, "flotilla_shard_waiting", shardLabels(id), 0, length, 0)
			if i == owner {
				f.set(m, "flotilla_shard_state", shardLabels(id)+`,state="running"`, 0, length, 1)
				f.set(m, "flotilla_shard_lease_renew_age_seconds", shardLabels(id), 0, length, 1.9)
			}
		}
		for _, state := range []string{"joining", "leaving", "drained"} {
			f.set(m, "flotilla_fleet_members", `state="`+state+`"`, 0, length, 0)
		}
		f.set(m, "flotilla_fleet_members", `state="active"`, 0, length, 3)
		for _, ring := range []string{"namespaces", "cluster"} {
			f.set(m, "flotilla_ring_hash_info", `ring="`+ring+`",hash="aaaa"`, 0, length, 1)
			f.set(m, "flotilla_ring_members", `ring="`+ring+`"`, 0, length, 3)
		}
		f.set(m, "flotilla_ring_load_ratio", `ring="namespaces"`, 0, length, 1.05)
		f.set(m, "flotilla_ring_load_ratio_least", `ring="namespaces"`, 0, length, 1)
		f.set(m, "flotilla_shard_objects", fmt.Sprintf(`ring="namespaces",shard="0%d"`, i), 0, length, 1000)
		f.set(m, "flotilla_shard_namespaces", fmt.Sprintf(`ring="namespaces",shard="0%d"`, i), 0, length, 20)
		f.set(m, "flotilla_leader_lock_held", stockLock, 0, length, 1)
		f.set(m, "flotilla_leader_lock_holder_live", stockLock, 0, length, 1)
		f.set(m, "flotilla_plan_generation", "", 0, length, 7)
		f.set(m, "flotilla_plan_refused", "", 0, length, 0)
		f.set(m, "flotilla_informer_resources", `filtered_by="client"`, 0, length, 0)
		f.set(m, "flotilla_informer_resources", `filtered_by="server"`, 0, length, 40)
		f.set(m, "flotilla_informer_failing", "", 0, length, 0)
		f.set(m, "process_start_time_seconds", "", 0, length, -float64(24*3600+i)) // long before the scenario
		f.set(m, "up", "", 0, length, 1)
	}
	return f
}

func is(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func shardLabels(id string) string {
	ring, name, _ := strings.Cut(id, "/")
	return fmt.Sprintf(`ring=%q,shard=%q`, ring, name)
}

// key returns a series as promtool reads it.
func key(member, metric, labels string) string {
	if labels != "" {
		labels = "," + labels
	}
	return fmt.Sprintf(`%s{namespace="kube-system",job="flotilla",instance=%q%s}`, metric, member, labels)
}

func (f fleet) row(series string) []float64 {
	if f[series] == nil {
		f[series] = slices.Repeat([]float64{nan}, int(length/interval)+1)
	}
	return f[series]
}

// set gives a member's series a value from one moment to just before another.
func (f fleet) set(member, metric, labels string, from, to time.Duration, value float64) {
	f.setFunc(key(member, metric, labels), from, to, func(int) float64 { return value })
}

func (f fleet) setFunc(series string, from, to time.Duration, value func(i int) float64) {
	row := f.row(series)
	for i := range row {
		if at := time.Duration(i) * interval; at >= from && (at < to || to == length) {
			row[i] = value(i)
		}
	}
}

// all sets a value in the series of all members.
func (f fleet) all(metric, labels string, from, to time.Duration, value float64) {
	for _, m := range members {
		f.set(m, metric, labels, from, to, value)
	}
}

// gone removes all samples of a member, as if it did not answer.
func (f fleet) gone(member string, from, to time.Duration) {
	for series := range f {
		if strings.Contains(series, fmt.Sprintf("instance=%q", member)) {
			f.setFunc(series, from, to, func(int) float64 { return nan })
		}
	}
}

// dies makes a member's target silent, and the others see one member less.
func (f fleet) dies(member string, from, to time.Duration) {
	f.live(from+30*second, to, float64(len(members)-1))
	f.gone(member, from, to)
	f.set(member, "up", "", from, to, 0)
}

// live sets how many members the others see.
func (f fleet) live(from, to time.Duration, n float64) {
	f.all("flotilla_fleet_members", `state="active"`, from, to, n)
	for _, ring := range []string{"namespaces", "cluster"} {
		f.all("flotilla_ring_members", `ring="`+ring+`"`, from, to, n)
	}
}

// move moves a shard from one member to another. For one scrape both seem to have it.
func (f fleet) move(id, from, to string, at time.Duration) {
	f.set(from, "flotilla_shard_owned", shardLabels(id), at+interval, length, 0)
	f.set(from, "flotilla_shard_desired", shardLabels(id), at, length, 0)
	f.set(to, "flotilla_shard_owned", shardLabels(id), at, length, 1)
	f.set(to, "flotilla_shard_desired", shardLabels(id), at, length, 1)
}

// rehash gives the members another placement. One of them sees it a scrape later.
func (f fleet) rehash(at time.Duration, hash string) {
	for i, m := range members {
		for series := range maps.Clone(f) {
			if strings.HasPrefix(series, "flotilla_ring_hash_info{") && strings.Contains(series, fmt.Sprintf("instance=%q", m)) {
				f.setFunc(series, at+time.Duration(i/2)*interval, length, func(int) float64 { return nan })
			}
		}
		for _, ring := range []string{"namespaces", "cluster"} {
			f.set(m, "flotilla_ring_hash_info", fmt.Sprintf(`ring=%q,hash=%q`, ring, hash), at+time.Duration(i/2)*interval, length, 1)
		}
	}
}

// restart ends a member's process in good order and starts it again later. Its shards go to the
// others and come back.
func (f fleet) restart(i int, at, away time.Duration) {
	m := members[i]
	own := func(back time.Duration) {
		for id, owner := range owners {
			if owner == i && back == 0 {
				f.move(id, m, members[(i+1)%3], at)
			} else if owner == i {
				f.move(id, members[(i+1)%3], m, back)
			}
		}
	}
	own(0)
	f.rehash(at, fmt.Sprintf("without-%d", i))
	back := at + away + 2*interval
	own(back)
	f.rehash(back, "aaaa")
	f.live(at, back, 2)
	f.live(back, length, 3)
	f.set(m, "process_start_time_seconds", "", at, length, (at + away).Seconds())
	f.gone(m, at+interval, at+interval+away)
}

// values returns a series in promtool's notation, with equal samples combined.
func values(row []float64) string {
	var parts []string
	for i := 0; i < len(row); {
		n := 1
		for i+n < len(row) && (row[i+n] == row[i] || math.IsNaN(row[i+n]) && math.IsNaN(row[i])) {
			n++
		}
		switch text := strconv.FormatFloat(row[i], 'f', -1, 64); {
		case math.IsNaN(row[i]):
			// A failed scrape makes a series stale at once. A missing sample would leave it alive
			// for five minutes.
			parts = append(parts, "stale")
			if n > 1 {
				parts = append(parts, fmt.Sprintf("_x%d", n-1))
			}
		case n == 1:
			parts = append(parts, text)
		default:
			parts = append(parts, fmt.Sprintf("%sx%d", text, n-1))
		}
		i += n
	}
	return strings.Join(parts, " ")
}
