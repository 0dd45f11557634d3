package sky

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Judge returns what is wrong in a log of calls, one line each:
//
//   - duplicate: a Service had two load balancers at a time;
//   - two at work: calls of two clients for one Service overlapped in time, and one of them could
//     change something; or an earlier owner of the shard made a change after a later owner did;
//   - leak: load balancers are left of a Service that is not alive, by UID.
//
// It is pure. The order of calls does not matter.
func Judge(calls []Call, alive func(uid string) bool) []string {
	byService := map[string][]Call{}
	for _, c := range calls {
		if c.UID != "" && c.Status != tooMany {
			byService[c.UID] = append(byService[c.UID], c)
		}
	}
	var found []string
	for _, uid := range slices.Sorted(maps.Keys(byService)) {
		of := byService[uid]
		slices.SortStableFunc(of, func(a, b Call) int { return a.Begin.Compare(b.Begin) })
		found = append(found, duplicates(uid, of)...)
		found = append(found, together(uid, of)...)
		found = append(found, backwards(uid, of)...)
		if left := living(of); len(left) > 0 && !alive(uid) {
			found = append(
				found,
				fmt.Sprintf(
					"leak: Service %s is gone, and its load balancers are left: %q", uid, left,
				),
			)
		}
	}
	return found
}

// duplicates finds the moments at which a Service gets a second load balancer.
func duplicates(uid string, calls []Call) []string {
	calls = effective(calls)
	var found, there []string
	for _, c := range calls {
		switch c.Method {
		case "POST":
			there = append(there, c.Balancer)
			if len(there) > 1 {
				found = append(
					found,
					fmt.Sprintf(
						"duplicate: Service %s has the load balancers %q when %s creates %s", uid,
						there, c.who(), c.Balancer,
					),
				)
			}
		case "DELETE":
			there = slices.DeleteFunc(there, func(id string) bool { return id == c.Balancer })
		}
	}
	return found
}

// living returns the load balancers that still exist.
func living(calls []Call) []string {
	var there []string
	for _, c := range effective(calls) {
		switch c.Method {
		case "POST":
			there = append(there, c.Balancer)
		case "DELETE":
			there = slices.DeleteFunc(there, func(id string) bool { return id == c.Balancer })
		}
	}
	return there
}

// effective returns the calls that took effect, in the order in which they did.
func effective(calls []Call) []Call {
	calls = slices.DeleteFunc(slices.Clone(calls), func(c Call) bool { return c.Effect.IsZero() })
	slices.SortStableFunc(calls, func(a, b Call) int { return a.Effect.Compare(b.Effect) })
	return calls
}

// together finds overlapping calls of two clients. The calls are ordered by when they began.
func together(uid string, calls []Call) []string {
	var found []string
	for i, a := range calls {
		for _, b := range calls[i+1:] {
			if !a.End.IsZero() && !b.Begin.Before(a.End) {
				continue
			}
			if a.Client != b.Client && (a.Writes() || b.Writes()) {
				found = append(
					found,
					fmt.Sprintf(
						"two at work: Service %s: %s and %s, at %s", uid, a.who(), b.who(),
						b.Begin.Format(time.StampMilli),
					),
				)
			}
		}
	}
	return found
}

// backwards finds a write of an earlier owner of a shard after one of a later owner.
func backwards(uid string, calls []Call) []string {
	var found []string
	last := map[string]Call{}
	for _, c := range calls {
		if !c.Writes() || c.Shard == "" {
			continue
		}
		if before, is := last[c.Shard]; is && c.Term < before.Term {
			found = append(
				found,
				fmt.Sprintf("two at work: Service %s: %s after %s", uid, c.who(), before.who()),
			)
			continue
		}
		last[c.Shard] = c
	}
	return found
}

func (c Call) who() string {
	if c.Shard == "" {
		return fmt.Sprintf("%s (%s)", c.Client, c.Method)
	}
	return fmt.Sprintf("%s (%s, shard %s, term %d)", c.Client, c.Method, c.Shard, c.Term)
}
