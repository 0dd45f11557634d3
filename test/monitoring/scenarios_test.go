package monitoring

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"time"
)

// scenarios returns first what is planned or heals by itself, which fires nothing, then one fault
// after the other.
func scenarios() []scenario {
	return append(planned(), append(ownership(), append(plans(), append(others(), canaries()...)...)...)...)
}

func planned() []scenario {
	return []scenario{
		{"nothing happens", func(fleet) {}, always()},
		{"rolling restart", func(f fleet) {
			for i := range members {
				f.restart(2-i, 10*minute+time.Duration(i)*2*minute, 45*second)
			}
		}, always()},
		{"three rolling restarts in a row", func(f fleet) {
			for n := range 9 {
				f.restart(n%3, 10*minute+time.Duration(n)*2*minute, 30*second)
			}
		}, always()},
		{"a shard is split in two", func(f fleet) {
			at := 20 * minute
			for i, m := range members {
				skew := time.Duration(i/2) * interval
				f.set(m, "flotilla_plan_generation", "", at+skew, length, 8)
				for n, successor := range []string{"namespaces/g8-00", "namespaces/g8-01"} {
					owner := i == n+1
					f.set(m, "flotilla_shard_owned", shardLabels(successor), at+skew, length, is(owner))
					f.set(m, "flotilla_shard_desired", shardLabels(successor), at+skew, length, is(owner))
					f.set(m, "flotilla_shard_waiting", shardLabels(successor), at+skew, length, is(owner))
					f.set(m, "flotilla_shard_waiting", shardLabels(successor), at+minute, length, 0)
				}
				// The holder keeps the predecessor until the successors are ready. The others
				// forget it at once.
				forgotten := at + skew
				if i == 0 {
					forgotten = at + minute
				}
				for _, metric := range []string{"flotilla_shard_owned", "flotilla_shard_desired", "flotilla_shard_waiting"} {
					f.set(m, metric, shardLabels("namespaces/00"), forgotten, length, nan)
				}
			}
			f.set(members[0], "flotilla_shard_lease_renew_age_seconds", shardLabels("namespaces/00"), at+minute, length, nan)
			f.rehash(at, "bbbb")
		}, always()},
		{"a member is killed, and stays away", func(f fleet) {
			at := 20 * minute
			f.gone(members[1], at, length)
			f.live(at+30*second, length, 2)
			f.gone(members[1], at, length)
			for id, owner := range owners {
				if owner == 1 {
					f.set(members[2], "flotilla_shard_owned", shardLabels(id), at+45*second, length, 1)
					f.set(members[2], "flotilla_shard_desired", shardLabels(id), at+15*second, length, 1)
				}
			}
			f.rehash(at+30*second, "cccc")
			f.gone(members[1], at, length)
		}, always()},
		{"every series is there twice", func(f fleet) {
			for series, row := range maps.Clone(f) {
				f[strings.Replace(series, `job="flotilla"`, `job="flotilla",endpoint="10257"`, 1)] = row
			}
		}, always()},
		{"another fleet under another job", func(f fleet) {
			for series, row := range maps.Clone(f) {
				f[strings.Replace(series, `job="flotilla"`, `job="second"`, 1)] = row
			}
		}, always()},
		{"a standby is prepared for what others have", func(f fleet) {
			f.set(members[2], "flotilla_shard_state", shardLabels("namespaces/00")+`,state="prepared"`, minute, length, 1)
		}, always()},
		{"a fleet without a leader lock is stopped", func(f fleet) {
			for _, metric := range []string{"flotilla_leader_lock_held", "flotilla_leader_lock_holder_live"} {
				f.all(metric, stockLock, 0, length, nan)
			}
			f.all("flotilla_fleet_stopped", "", 0, length, 0)
			f.all("flotilla_fleet_stopped", "", 20*minute, length, 1)
			for id := range owners {
				f.all("flotilla_shard_owned", shardLabels(id), 20*minute, length, 0)
				f.all("flotilla_shard_desired", shardLabels(id), 20*minute, length, 0)
			}
		}, always()},
		{"the fleet waits for its leader lock for five minutes", func(f fleet) {
			f.all("flotilla_leader_lock_held", stockLock, 20*minute, 25*minute, 0)
			for id := range owners {
				f.all("flotilla_shard_owned", shardLabels(id), 20*minute, 25*minute, 0)
			}
		}, always()},
	}
}

func ownership() []scenario {
	from, to := 10*minute, 40*minute
	return []scenario{
		{"a shard is held by nobody", func(f fleet) {
			f.set(members[1], "flotilla_shard_owned", shardLabels("namespaces/01"), from, to, 0)
			f.set(members[1], "flotilla_shard_desired", shardLabels("namespaces/01"), from, to, 0)
		}, []moment{
			quiet(from + 100*second), fires(from+150*second, "FlotillaShardWithoutOwner"),
			fires(to-interval, "FlotillaShardWithoutOwner"), quiet(to),
		}},
		{"a shard is held by nobody, and one member is down", func(f fleet) {
			f.gone(members[1], from, length)
			f.live(from+30*second, length, 2)
			f.gone(members[1], from, length)
			f.set(members[2], "flotilla_shard_owned", shardLabels("namespaces/01"), to, length, 1)
			f.set(members[2], "flotilla_shard_owned", shardLabels("cluster/policy"), from+30*second, length, 1)
		}, []moment{quiet(from + 2*minute), fires(from+3*minute, "FlotillaShardWithoutOwner"), quiet(to)}},
		{"a shard of an older plan, which only a straggler knows, is held by nobody", func(f fleet) {
			f.set(members[1], "flotilla_plan_generation", "", from, to, 6)
			f.set(members[1], "flotilla_shard_owned", shardLabels("namespaces/old"), from, to, 0)
		}, []moment{
			quiet(from + 5*minute), fires(from+11*minute, "FlotillaMembersDisagree"), quiet(to),
		}},
		{"a shard is on two members", func(f fleet) {
			f.set(members[2], "flotilla_shard_owned", shardLabels("namespaces/01"), from, to, 1)
		}, []moment{
			quiet(from + 45*second), fires(from+75*second, "FlotillaShardWithTwoOwners"),
			fires(to-interval, "FlotillaShardWithTwoOwners"), quiet(to),
		}},
		{"a member cannot be scraped, but lives", func(f fleet) {
			f.gone(members[1], from, to)
			f.set(members[1], "up", "", from, to, 0)
		}, []moment{
			quiet(from + 4*minute), fires(from+6*minute, "FlotillaMembersNotScraped"), fires(to-interval, "FlotillaMembersNotScraped"), quiet(to),
		}},
		{"a member is down", func(f fleet) {
			f.dies(members[1], from, to)
			f.set(members[2], "flotilla_shard_owned", shardLabels("namespaces/01"), from+30*second, to, 1)
			f.set(members[2], "flotilla_shard_owned", shardLabels("cluster/policy"), from+30*second, to, 1)
		}, []moment{quiet(from + 14*minute), fires(from+16*minute, "FlotillaMemberDown"), fires(to-interval, "FlotillaMemberDown"), quiet(to)}},
		{"no member can be scraped", func(f fleet) {
			for _, m := range members {
				f.gone(m, from, to)
			}
		}, []moment{quiet(from + 105*second), fires(from+150*second, "FlotillaDown"), fires(to-interval, "FlotillaDown"), quiet(to)}},
		{"one fleet of two is away", func(f fleet) {
			for series, row := range maps.Clone(f) {
				f[strings.Replace(series, `job="flotilla"`, `job="second"`, 1)] = append([]float64{}, row...)
			}
			for series := range f {
				if strings.Contains(series, "second") {
					f.setFunc(series, from, length, func(int) float64 { return nan })
				}
			}
		}, []moment{fires(from+5*minute, "FlotillaDown"), fires(length, "FlotillaDown")}},
		{"a shard does not start", func(f fleet) {
			f.set(members[1], "flotilla_shard_state", shardLabels("namespaces/01")+`,state="running"`, from, to, nan)
			f.set(members[1], "flotilla_shard_state", shardLabels("namespaces/01")+`,state="starting"`, from, to, 1)
		}, []moment{quiet(from + 4*minute), fires(from+6*minute, "FlotillaShardNotStarting"), quiet(to)}},
		{"a shard starts on one member after another", func(f fleet) {
			f.all("flotilla_shard_owned", shardLabels("namespaces/01"), from, to, 0)
			f.set(members[1], "flotilla_shard_state", shardLabels("namespaces/01")+`,state="running"`, from, to, nan)
			// Each member that starts it dies a minute later. The next one takes over after another
			// half minute.
			for n := range 8 {
				m, at := members[(n+1)%3], from+time.Duration(n)*90*second
				f.set(m, "flotilla_shard_owned", shardLabels("namespaces/01"), at, at+minute, 1)
				f.set(m, "flotilla_shard_state", shardLabels("namespaces/01")+`,state="starting"`, at, at+minute, 1)
				f.gone(m, at+minute, at+90*second)
			}
			well := from + 12*minute
			f.set(members[1], "flotilla_shard_owned", shardLabels("namespaces/01"), well, to, 1)
			f.set(members[1], "flotilla_shard_state", shardLabels("namespaces/01")+`,state="running"`, well, to, 1)
		}, []moment{
			quiet(from + 4*minute), fires(from+6*minute, "FlotillaShardNotStarting"),
			fires(from+11*minute+45*second, "FlotillaShardNotStarting"), quiet(from + 12*minute), quiet(to),
		}},
		{"a shard moves every two minutes and takes one to start", func(f fleet) {
			for n := range 10 {
				last, next, at := members[(n+1)%3], members[(n+2)%3], from+time.Duration(n)*2*minute
				f.move("namespaces/01", last, next, at)
				f.set(last, "flotilla_shard_state", shardLabels("namespaces/01")+`,state="running"`, at, length, nan)
				f.set(next, "flotilla_shard_state", shardLabels("namespaces/01")+`,state="starting"`, at, at+minute, 1)
				f.set(next, "flotilla_shard_state", shardLabels("namespaces/01")+`,state="running"`, at+minute, length, 1)
			}
		}, always()},
		{"the leader lock is held by others", func(f fleet) {
			f.all("flotilla_leader_lock_held", stockLock, from, to, 0)
			for id := range owners {
				f.all("flotilla_shard_owned", shardLabels(id), from, to, 0)
			}
		}, []moment{quiet(from + 9*minute), fires(from+11*minute, "FlotillaLeaderLockNotHeld"), quiet(to)}},
		{"the leader lock passes from a dead holder to the fleet", func(f fleet) {
			f.all("flotilla_leader_lock_held", stockLock, 0, from+minute, 0)
			f.all("flotilla_leader_lock_holder_live", stockLock, from, from+minute, 0)
			for id := range owners {
				f.all("flotilla_shard_owned", shardLabels(id), 0, from+minute, 0)
			}
		}, []moment{quiet(from - minute), quiet(from + 90*second), quiet(to)}},
		{"the leader lock is held by who is dead", func(f fleet) {
			f.all("flotilla_leader_lock_held", stockLock, from, to, 0)
			f.all("flotilla_leader_lock_holder_live", stockLock, from+minute, to, 0)
			for id := range owners {
				f.all("flotilla_shard_owned", shardLabels(id), from, to, 0)
			}
		}, []moment{
			quiet(from + 160*second), fires(from+200*second, "FlotillaLeaderLockWithoutHolder"),
			fires(from+11*minute, "FlotillaLeaderLockWithoutHolder", "FlotillaLeaderLockNotHeld"),
			fires(to-interval, "FlotillaLeaderLockWithoutHolder", "FlotillaLeaderLockNotHeld"), quiet(to),
		}},
		{"the fleet waits for the first of two leader locks, and nobody holds the second", func(f fleet) {
			f.all("flotilla_leader_lock_held", stockLock, from, to, 0)
			f.all("flotilla_leader_lock_holder_live", stockLock, to-10*minute, to, 0)
			f.all("flotilla_leader_lock_held", secondLock, 0, length, 1)
			f.all("flotilla_leader_lock_holder_live", secondLock, 0, length, 1)
			f.all("flotilla_leader_lock_held", secondLock, from, to, 0)
			f.all("flotilla_leader_lock_holder_live", secondLock, from, to, 0)
			for id := range owners {
				f.all("flotilla_shard_owned", shardLabels(id), from, to, 0)
			}
		}, []moment{
			quiet(from + 9*minute), fires(from+11*minute, "FlotillaLeaderLockNotHeld"),
			// Then the holder of the first one dies.
			fires(to-9*minute, "FlotillaLeaderLockNotHeld"),
			fires(to-7*minute, "FlotillaLeaderLockNotHeld", "FlotillaLeaderLockWithoutHolder"), quiet(to),
		}},
		{"the fleet holds the first of two leader locks, and the holder of the second is dead", func(f fleet) {
			f.all("flotilla_leader_lock_held", secondLock, from, to, 0)
			f.all("flotilla_leader_lock_holder_live", secondLock, from, to, 0)
			for id := range owners {
				f.all("flotilla_shard_owned", shardLabels(id), from, to, 0)
			}
		}, []moment{
			quiet(from + minute), fires(from+3*minute, "FlotillaLeaderLockWithoutHolder"),
			fires(to-interval, "FlotillaLeaderLockNotHeld", "FlotillaLeaderLockWithoutHolder"), quiet(to),
		}},
		{"one member does not see that the leader lock is renewed", func(f fleet) {
			f.set(members[1], "flotilla_leader_lock_holder_live", stockLock, from, to, 0)
		}, always()},
	}
}

// forgotten returns a test in which one fleet of two goes, and then the other, for longer than they
// are remembered. It has only the metric that tells of fleets: to evaluate all others for a day
// would take minutes.
func forgotten() map[string]any {
	series := func(job string, until time.Duration) map[string]any {
		name := strings.Replace(key(members[0], "flotilla_plan_refused", ""), "flotilla\"", job+"\"", 1)
		return map[string]any{"series": name, "values": fmt.Sprintf("0x%d stale", int(until/interval)-1)}
	}
	check := func(at time.Duration, jobs ...string) map[string]any {
		samples := []map[string]any{}
		for _, job := range jobs {
			samples = append(samples, map[string]any{"labels": job, "value": 1})
		}
		return map[string]any{
			"expr": `group by (job) (ALERTS{alertname="FlotillaDown",alertstate="firing"})`, "eval_time": at.String(), "exp_samples": samples,
		}
	}
	const first, second, anyFleet = `{job="flotilla"}`, `{job="second"}`, "{}"
	return map[string]any{
		"name": "two fleets go for good", "interval": interval.String(),
		"input_series": []map[string]any{series("flotilla", 10*minute), series("second", 2*hour)},
		"promql_expr_test": []map[string]any{
			check(9 * minute), check(13*minute, first), check(3*hour, first, second), check(24*hour, first, second), check(24*hour+20*minute, second),
			check(25*hour+55*minute, second, anyFleet), check(26*hour+10*minute, anyFleet), check(30*hour, anyFleet),
		},
	}
}

func plans() []scenario {
	from, to := 10*minute, 40*minute
	return []scenario{
		{"a member refuses the plan", func(f fleet) {
			f.set(members[1], "flotilla_plan_refused", "", from, to, 1)
			f.set(members[1], "flotilla_ring_hash_info", `ring="cluster",hash="aaaa"`, from, to, nan)
			f.set(members[1], "flotilla_ring_hash_info", `ring="cluster",hash="dddd"`, from, to, 1)
			f.set(members[1], "flotilla_plan_generation", "", from, to, 6)
		}, []moment{
			quiet(from + 90*second), fires(from+150*second, "FlotillaPlanRefused"), fires(to-interval, "FlotillaPlanRefused"), quiet(to),
		}},
		{"a junk plan is there for a minute, until the planner puts the good one back", func(f fleet) {
			f.all("flotilla_plan_refused", "", from, from+minute, 1)
			f.all("flotilla_plan_generation", "", from+minute, length, 8)
		}, always()},
		{"no member has a plan", func(f fleet) {
			f.all("flotilla_plan_refused", "", from, to, 1)
			for series := range f {
				if strings.HasPrefix(series, "flotilla_plan_generation") || strings.HasPrefix(series, "flotilla_shard_") ||
					strings.HasPrefix(series, "flotilla_ring_") {
					f.setFunc(series, from, to, func(int) float64 { return nan })
				}
			}
		}, []moment{
			quiet(from + 90*second), fires(from+150*second, "FlotillaPlanRefused", "FlotillaWithoutPlan"), quiet(to),
		}},
		{"a member's version lacks controllers for half an hour", func(f fleet) {
			f.set(members[1], "flotilla_plan_controllers_lacking", "", from, from+35*minute, 2)
		}, []moment{quiet(from + 29*minute), fires(from+31*minute, "FlotillaControllersLacking"), quiet(from + 35*minute)}},
		{"a rollout from minor to minor", func(f fleet) {
			f.set(members[1], "flotilla_plan_controllers_lacking", "", from, from+25*minute, 2)
		}, always()},
		{"members place a ring differently", func(f fleet) {
			f.set(members[1], "flotilla_ring_hash_info", `ring="cluster",hash="aaaa"`, from, to, nan)
			f.set(members[1], "flotilla_ring_hash_info", `ring="cluster",hash="dddd"`, from, to, 1)
		}, []moment{quiet(from + 9*minute), fires(from+11*minute, "FlotillaMembersDisagree"), quiet(to)}},
		{"a member joins for half an hour", func(f fleet) {
			for _, ring := range []string{"namespaces", "cluster"} {
				f.set(members[1], "flotilla_ring_hash_info", fmt.Sprintf(`ring=%q,hash="aaaa"`, ring), from, to, nan)
				f.set(members[1], "flotilla_ring_hash_info", fmt.Sprintf(`ring=%q,hash="0000"`, ring), from, to, 1)
				f.set(members[1], "flotilla_ring_members", fmt.Sprintf(`ring=%q`, ring), from, to, 0)
			}
			for id, owner := range owners {
				if owner == 1 {
					f.move(id, members[1], members[2], from)
				}
			}
		}, always()},
		{"a member has an older plan", func(f fleet) {
			f.set(members[1], "flotilla_plan_generation", "", from, to, 6)
		}, []moment{quiet(from + 9*minute), fires(from+11*minute, "FlotillaMembersDisagree"), quiet(to)}},
		{"a successor waits for its predecessors", func(f fleet) {
			f.set(members[2], "flotilla_shard_waiting", shardLabels("namespaces/02"), from, to, 1)
		}, []moment{quiet(from + 9*minute), fires(from+11*minute, "FlotillaHandoffStuck"), quiet(to)}},
		{"a shard is wanted and not got", func(f fleet) {
			f.set(members[1], "flotilla_shard_desired", shardLabels("namespaces/02"), from, to, 1)
			f.set(members[2], "flotilla_shard_desired", shardLabels("namespaces/02"), from, to, 0)
		}, []moment{quiet(from + 9*minute), fires(from+11*minute, "FlotillaHandoffStuck"), quiet(to)}},
		{"a shard drains without end", func(f fleet) {
			f.set(members[2], "flotilla_shard_state", shardLabels("namespaces/02")+`,state="draining"`, from, to, 1)
		}, []moment{quiet(from + 9*minute), fires(from+11*minute, "FlotillaHandoffStuck"), quiet(to)}},
		{"shards are wanted and not got one after the other", func(f fleet) {
			for n := range 8 {
				f.set(members[1], "flotilla_shard_desired", shardLabels(fmt.Sprintf("namespaces/g8-%02d", n)),
					from+time.Duration(n)*3*minute, from+time.Duration(n+1)*3*minute, 1)
			}
		}, always()},
	}
}

func others() []scenario {
	from, to := 10*minute, 70*minute
	return []scenario{
		{"a member restarts every four minutes", func(f fleet) {
			for at := from; at < from+30*minute; at += 4 * minute {
				f.set(members[1], "process_start_time_seconds", "", at, length, at.Seconds())
			}
		}, []moment{quiet(from + 11*minute), fires(from+14*minute, "FlotillaMemberFlapping"), quiet(from + 60*minute)}},
		{"renewals are late", func(f fleet) {
			for at := from; at < to; at += 90 * second {
				f.set(members[1], "flotilla_shard_lease_renew_age_seconds", shardLabels("namespaces/01"), at, at+interval, 7.5)
			}
		}, []moment{quiet(from + 4*minute), fires(from+7*minute, "FlotillaLeaseRenewalSlow"), quiet(to + 3*minute)}},
		{"a renewal is late once", func(f fleet) {
			f.all("flotilla_shard_lease_renew_age_seconds", shardLabels("namespaces/01"), from, from+30*second, 9)
		}, always()},
		{"writes are refused without end", func(f fleet) {
			f.setFunc(key(members[1], "flotilla_fence_refused_writes_total", `ring="namespaces",reason="closed"`), 0, length, counter(from, to, 2))
		}, []moment{
			quiet(from + 19*minute), fires(from+22*minute, "FlotillaWritesFenced"), fires(to, "FlotillaWritesFenced"), quiet(to + 6*minute),
		}},
		{"writes are refused in one drain", func(f fleet) {
			f.setFunc(key(members[1], "flotilla_fence_refused_writes_total", `ring="namespaces",reason="closed"`), 0, length, counter(from, from+minute, 50))
		}, always()},
		{"one member has most of the load", func(f fleet) {
			f.all("flotilla_ring_load_ratio", `ring="namespaces"`, from, to, 2.1)
		}, []moment{quiet(from + 29*minute), fires(from+31*minute, "FlotillaLoadUneven"), quiet(to)}},
		{"one member has the namespace or the group that is most of the load", func(f fleet) {
			f.all("flotilla_ring_load_ratio", `ring="namespaces"`, from, to, 2.1)
			f.all("flotilla_ring_load_ratio_least", `ring="namespaces"`, from, to, 2)
		}, always()},
		{"one member has the heaviest namespace, and much besides", func(f fleet) {
			f.all("flotilla_ring_load_ratio", `ring="namespaces"`, from, to, 2.9)
			f.all("flotilla_ring_load_ratio_least", `ring="namespaces"`, from, to, 1.3)
		}, []moment{fires(from+31*minute, "FlotillaLoadUneven"), quiet(to)}},
		{"one member has most of next to nothing", func(f fleet) {
			f.all("flotilla_ring_load_ratio", `ring="namespaces"`, from, to, 3)
			for i, m := range members {
				f.set(m, "flotilla_shard_objects", fmt.Sprintf(`ring="namespaces",shard="0%d"`, i), 0, length, 30)
			}
		}, always()},
		{"a member filters by itself", func(f fleet) {
			f.set(members[1], "flotilla_informer_resources", `filtered_by="client"`, from, to, 40)
			f.set(members[1], "flotilla_informer_resources", `filtered_by="server"`, from, to, 0)
		}, []moment{quiet(from + 29*minute), fires(from+31*minute, "FlotillaClientSideFiltering"), quiet(to)}},
		{"a member filtered by itself while it had ranges", func(f fleet) {
			noRanges(f, from)
			f.set(members[1], "flotilla_informer_resources", `filtered_by="client"`, 0, length, 40)
			f.set(members[1], "flotilla_informer_resources", `filtered_by="server"`, 0, length, 0)
		}, always()},
		{"the API server filtered while a member had ranges that has none now", func(f fleet) {
			noRanges(f, from)
			for _, m := range []string{members[0], members[2]} {
				f.set(m, "flotilla_informer_resources", `filtered_by="client"`, from, length, 40)
				f.set(m, "flotilla_informer_resources", `filtered_by="server"`, from, length, 0)
			}
		}, always()},
		{"members filter resources of aggregated APIs by themselves", func(f fleet) {
			f.all("flotilla_informer_resources", `filtered_by="client"`, from, to, 12)
			feature(f, "10.0.0.1", 1)
		}, always()},
		{"all members filter by themselves, and all API servers have the feature", func(f fleet) {
			filterAlone(f, from, to)
			feature(f, "10.0.0.1", 1)
			feature(f, "10.0.0.2", 1)
		}, []moment{quiet(from + 29*minute), fires(from+31*minute, "FlotillaClientSideFiltering"), quiet(to)}},
		{"all members filter by themselves, and one API server has not the feature", func(f fleet) {
			filterAlone(f, from, to)
			feature(f, "10.0.0.1", 1)
			feature(f, "10.0.0.2", 0)
		}, always()},
		{"all members filter by themselves, and no API server is scraped", func(f fleet) { filterAlone(f, from, to) }, always()},
		{"a conversion webhook is down", func(f fleet) {
			f.all("flotilla_informer_failing", "", from, to, 1)
		}, []moment{quiet(from + 9*minute), fires(from+11*minute, "FlotillaResourceUnreadable"), quiet(to)}},
		{"a conversion webhook restarts", func(f fleet) {
			f.all("flotilla_informer_failing", "", from, from+5*minute, 1)
		}, always()},
		{"handoffs leave shards alone for long", func(f fleet) { handoffs(f, members[1], from, 10, 8) },
			[]moment{quiet(from - minute), fires(from+2*minute, "FlotillaUnownedTooLong"), quiet(from + 33*minute)}},
		{"handoffs of a process that has just started do", func(f fleet) {
			handoffs(f, members[1], from, 10, 8)
			unscraped(f, "flotilla_shard_unowned_seconds_bucket", 0, from)
			f.set(members[1], "process_start_time_seconds", "", from, length, from.Seconds())
		}, []moment{fires(from+2*minute, "FlotillaUnownedTooLong"), quiet(from + 33*minute)}},
		{"handoffs did long before the fleet was first scraped", func(f fleet) {
			handoffs(f, members[1], 0, 10, 8)
			unscraped(f, "flotilla_shard_unowned_seconds_bucket", 0, from)
		}, always()},
		{"handoffs did long before nobody could scrape for a while", func(f fleet) {
			handoffs(f, members[1], 0, 10, 8)
			unscraped(f, "flotilla_shard_unowned_seconds_bucket", from, from+10*minute)
		}, always()},
		{"handoffs do soon after the fleet was first scraped", func(f fleet) {
			handoffs(f, members[1], from+5*minute, 10, 8)
			unscraped(f, "flotilla_shard_unowned_seconds_bucket", 0, from)
		}, []moment{quiet(from + 5*minute - interval), fires(from+7*minute, "FlotillaUnownedTooLong"), quiet(from + 40*minute)}},
		{"one handoff of many does", func(f fleet) { handoffs(f, members[1], from, 50, 1) }, always()},
	}
}

// counter returns a counter that grows by each between two scrapes, from one moment to another.
func counter(from, to time.Duration, each float64) func(int) float64 {
	return func(i int) float64 {
		at := time.Duration(i) * interval
		return each * math.Max(0, float64((min(at, to)-from)/interval))
	}
}

// canaries returns scenarios in which flotilla-2 tries another version on its shards.
func canaries() []scenario {
	from, to := 10*minute, 60*minute
	tried := func(f fleet) {
		for i, m := range members {
			f.set(m, "flotilla_canary_tried", "", 0, length, is(i == 2))
		}
	}
	return []scenario{
		{"a version that is tried does as well as the others", func(f fleet) {
			tried(f)
			for i := range members {
				answers(f, i, from, to, 100, 10)
				waits(f, i, from, to, false)
			}
		}, always()},
		{"a version that is tried has errors", func(f fleet) {
			tried(f)
			for i := range members {
				answers(f, i, from, to, 100, map[bool]float64{true: 10, false: 1}[i == 2])
			}
		}, []moment{quiet(from + 9*minute), fires(from+15*minute, "FlotillaCanaryWorse"), fires(to, "FlotillaCanaryWorse"), quiet(to + 15*minute)}},
		{"a version that is tried has errors, and is scraped twice", func(f fleet) {
			tried(f)
			for i := range members {
				answers(f, i, from, to, 100, map[bool]float64{true: 10, false: 1}[i == 2])
			}
			for series, row := range maps.Clone(f) {
				f[strings.Replace(series, `job="flotilla"`, `job="flotilla",endpoint="10257"`, 1)] = row
			}
		}, []moment{quiet(from + 9*minute), fires(from+15*minute, "FlotillaCanaryWorse"), quiet(to + 15*minute)}},
		{"the other versions have errors", func(f fleet) {
			tried(f)
			for i := range members {
				answers(f, i, from, to, 100, map[bool]float64{true: 1, false: 10}[i == 2])
			}
		}, always()},
		{"a member has errors, and no version is tried", func(f fleet) {
			f.all("flotilla_canary_tried", "", 0, length, 0)
			for i := range members {
				answers(f, i, from, to, 100, map[bool]float64{true: 10, false: 1}[i == 2])
			}
		}, always()},
		{"a version that is tried has an error now and then", func(f fleet) {
			tried(f)
			for i := range members {
				answers(f, i, from, to, 1, map[bool]float64{true: 0.5, false: 0}[i == 2])
			}
		}, always()},
		{"work waits where a version is tried", func(f fleet) {
			tried(f)
			for i := range members {
				waits(f, i, from, to, i == 2)
			}
		}, []moment{quiet(from + 9*minute), fires(from+15*minute, "FlotillaCanaryWorse"), quiet(to + 15*minute)}},
		{"a version that is tried has errors, and the others have nothing to do", func(f fleet) {
			tried(f)
			for i := range members {
				answers(f, i, from, to, map[bool]float64{true: 100, false: 0}[i == 2], map[bool]float64{true: 10, false: 0}[i == 2])
			}
		}, []moment{quiet(from + 9*minute), fires(from+15*minute, "FlotillaCanaryWorse"), quiet(to + 15*minute)}},
		{"work waits where a version is tried, and the others have nothing to do", func(f fleet) {
			tried(f)
			waits(f, 2, from, to, true)
		}, []moment{quiet(from + 9*minute), fires(from+15*minute, "FlotillaCanaryWorse"), quiet(to + 15*minute)}},
		// Nothing follows the minute that would dilute its share.
		{"a minute of errors", func(f fleet) {
			tried(f)
			for i := range members {
				answers(f, i, from, from+minute, 100, map[bool]float64{true: 300, false: 0}[i == 2])
			}
		}, always()},
		{"a minute of waits", func(f fleet) {
			tried(f)
			for i := range members {
				waitsOf(f, i, from, from+minute, 100, i == 2)
			}
		}, always()},
		{"an item now and then waits where a version is tried", func(f fleet) {
			tried(f)
			for i := range members {
				waitsOf(f, i, from, to, map[bool]float64{true: 0.5, false: 10}[i == 2], i == 2)
			}
		}, always()},
		{"work waits everywhere", func(f fleet) {
			tried(f)
			for i := range members {
				waits(f, i, from, to, true)
			}
		}, always()},
	}
}

// answers sets how many successful and failed answers a member's controllers get between two
// scrapes.
func answers(f fleet, member int, from, to time.Duration, ok, failed float64) {
	for result, step := range map[string]float64{"ok": ok, "conflict": ok, "throttled": 0, "refused": failed, "failed": 0} {
		f.setFunc(key(members[member], "flotilla_controller_requests_total", fmt.Sprintf("result=%q", result)), 0, length, counter(from, to, step))
	}
}

// waits makes ten items begin between two scrapes. Each has waited for seconds if late is set, and
// hardly at all otherwise.
func waits(f fleet, member int, from, to time.Duration, late bool) {
	waitsOf(f, member, from, to, 10, late)
}

// waitsOf is waits with another number of items.
func waitsOf(f fleet, member int, from, to time.Duration, items float64, late bool) {
	soon := is(!late) * items
	for le, step := range map[string]float64{"0.1": soon, "1": soon, "10": items, "+Inf": items} {
		labels := shardLabels(fmt.Sprintf("namespaces/0%d", member)) + fmt.Sprintf(",le=%q", le)
		f.setFunc(key(members[member], "flotilla_shard_queue_duration_seconds_bucket", labels), 0, length, counter(from, to, step))
	}
}

// noRanges leaves the second member with shards of the other ring only.
func noRanges(f fleet, from time.Duration) {
	f.move("namespaces/01", members[1], members[2], from)
	f.set(members[1], "flotilla_shard_objects", shardLabels("namespaces/01"), from, length, nan)
	f.set(members[2], "flotilla_shard_objects", shardLabels("namespaces/01"), from, length, 1000)
}

// unscraped removes a metric's samples between two moments.
func unscraped(f fleet, metric string, from, to time.Duration) {
	for series := range f {
		if strings.HasPrefix(series, metric+"{") {
			f.setFunc(series, from, to, func(int) float64 { return nan })
		}
	}
}

func filterAlone(f fleet, from, to time.Duration) {
	f.all("flotilla_informer_resources", `filtered_by="client"`, from, to, 40)
	f.all("flotilla_informer_resources", `filtered_by="server"`, from, to, 0)
}

func feature(f fleet, apiServer string, on float64) {
	series := fmt.Sprintf(`kubernetes_feature_enabled{job="apiserver",instance=%q,name="ShardedListAndWatch",stage="ALPHA"}`, apiServer)
	f.setFunc(series, 0, length, func(int) float64 { return on })
}

// handoffs records n handoffs that a member observes at a moment, some of them slow.
func handoffs(f fleet, member string, at time.Duration, n, slow int) {
	for _, b := range []struct {
		le    string
		value int
	}{{"0.1", n - slow}, {"5", n - slow}, {"10", n}, {"+Inf", n}} {
		series := key(member, "flotilla_shard_unowned_seconds_bucket", fmt.Sprintf(`ring="namespaces",how="handoff",le=%q`, b.le))
		f.setFunc(series, 0, at, func(int) float64 { return 0 })
		f.setFunc(series, at, length, func(int) float64 { return float64(b.value) })
	}
}
