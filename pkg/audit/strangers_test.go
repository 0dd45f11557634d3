package audit_test

import (
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// as returns the request as sent with a token of a controller's account.
func (l line) as(controller, token string) line {
	return l.with("user", map[string]any{
		"username": "system:serviceaccount:kube-system:" + controller,
		"extra":    map[string]any{"authentication.kubernetes.io/credential-id": []string{token}},
	})
}

// TestUnmarked has members that write without the fence's User-Agent, from binaries of any name.
func TestUnmarked(t *testing.T) {
	const pod = "kube-controller-manager/v1.37.1 (linux/amd64) kubernetes/fedcba9" // The static pod's binary has the stock name.
	named := func(agent string) []line {
		renamed := func(l line) line {
			return l.with("userAgent", strings.Replace(l["userAgent"].(string), client, agent, 1))
		}
		return []line{
			renamed(waits(a, lockName)), renamed(lease(lower, a, 1, 10, 10)), renamed(lock(lockHolder, 6, 1)), renamed(write(a, lower, 1, low, 20, 11)),
		}
	}
	published := waits(a, lockName)
	published["responseObject"].(map[string]any)["metadata"].(map[string]any)["annotations"].(map[string]any)["flotilla.dev/credential-ids"] = "JTI=1,JTI=2"
	plain := request("update", "", "apps", "replicasets", low, "web", 12)
	of := func(agent string) line { return plain.with("userAgent", agent) }
	other := func(namespace, name string) line {
		return request("update", pod, "coordination.k8s.io", "leases", namespace, name, 12).with("responseObject", jsonObject{"kind": "Lease", "metadata": map[string]any{
			"name": name, "resourceVersion": "21", "labels": map[string]any{"flotilla.dev/fleet": "armada"}}})
	}
	guilty := []audit.Kind{audit.Unfenced}
	twin := lock(stock, 4, 0.5).with("userAgent", pod+"/leader-election")
	released := lock("", 5, 0.7).with("userAgent", pod+"/leader-election")
	tests := map[string]struct {
		lines   []line
		want    []audit.Kind
		unnamed int
	}{
		"by its controllers":             {lines: []line{of(pod + "/deployment-controller")}, want: guilty},
		"by the process":                 {lines: []line{of(pod)}, want: guilty},
		"another's":                      {lines: []line{of(stockAgent + "/deployment-controller")}},
		"another version's":              {lines: []line{of(strings.Replace(pod, "37", "36", 1))}},
		"a kubelet's of that build":      {lines: []line{of(pod).with("user", map[string]any{"username": "system:node:n"})}},
		"a Lease of the fleet":           {lines: []line{other("kube-system", fleetName+"-member-x")}},
		"the leader lock":                {lines: []line{request("update", pod, "coordination.k8s.io", "leases", "kube-system", lockName, 12).code(504)}},
		"another fleet's":                {lines: []line{other("kube-system", "armada-member-x")}},
		"a Lease that nobody named":      {lines: []line{other("kube-system", "kube-scheduler")}, want: guilty},
		"a node's Lease":                 {lines: []line{other("kube-node-lease", machine)}, want: guilty},
		"a Lease in another namespace":   {lines: []line{other("other", fleetName+"-member-x")}, want: guilty},
		"an account of a controller":     {lines: []line{request("create", pod, "", "serviceaccounts", "kube-system", "job-controller", 12)}},
		"an account of somebody's":       {lines: []line{request("create", pod, "", "serviceaccounts", low, "default", 12)}, want: guilty},
		"an account, deleted":            {lines: []line{request("delete", pod, "", "serviceaccounts", "kube-system", "job-controller", 12)}, want: guilty},
		"dry run":                        {lines: []line{of(pod).with("requestURI", "/replicasets/web?dryRun=All")}},
		"refused":                        {lines: []line{of(pod).code(403)}},
		"under any name, by its token":   {lines: []line{published, of("curl/8").as("deployment-controller", "JTI=2")}, want: guilty},
		"by a token that nobody has":     {lines: []line{published, of("curl/8").as("deployment-controller", "JTI=9")}},
		"a twin led, its own token":      {lines: []line{twin, released, published, of(pod).as("deployment-controller", "JTI=9")}},
		"a twin led, the member's token": {lines: []line{twin, released, published, of(pod).as("deployment-controller", "JTI=1")}, want: guilty},
		"a twin led, no token":           {lines: []line{twin, released, of(pod)}, unnamed: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, append(test.lines, named(pod)...)...)
			requireKinds(t, report, test.want...)
			if report.Unnamed != test.unnamed {
				t.Errorf("%d unnamed, want %d", report.Unnamed, test.unnamed)
			}
		})
	}
}

// TestTwoFleets has another fleet of the same build, with shards of the same names.
func TestTwoFleets(t *testing.T) {
	const other = "armada-0_zzz"
	of := func(namespace, fleet string) line {
		return request("update", client+"/fleet-member/x", "coordination.k8s.io", "leases", namespace, fleet+"-member-armada-0", 1).with("responseObject", map[string]any{
			"kind": "Lease", "metadata": map[string]any{
				"name": fleet + "-member-armada-0", "resourceVersion": "5",
				"labels": map[string]any{"flotilla.dev/fleet": fleet}, "annotations": map[string]any{"flotilla.dev/leader-locks": "theirs"},
			},
			"spec": map[string]any{"holderIdentity": other},
		})
	}
	lock := request("update", client, "coordination.k8s.io", "leases", "kube-system", "theirs", 2)
	theirs := []line{
		write(other, lower, 1, high, 40, 2), lock,
		does("create", agent(other, lower, 1), "", "pods", pod("p3"), 41, 41),
		does("delete", agent(other, lower, 1), "", "pods", pod("p0"), 105, 105),
	}
	requireKinds(t, check(t, append(append(theirs, of("kube-system", "armada")), scene()...)...))
	requireKinds(t, check(t, append(append(theirs[:1:1], of("other", fleetName)), scene()...)...))
	// The other fleet has a build of its own, with which it also writes without a claim.
	const build = "cloud/v1 (linux/amd64) kubernetes/abc"
	marked := theirs[0].with("userAgent", strings.Replace(theirs[0]["userAgent"].(string), client, build, 1))
	requireKinds(t, check(t, append([]line{marked, of("kube-system", "armada"), request("update", build, "", "configmaps", low, "c", 3)}, scene()...)...))
	requireKinds(t, check(t, append(theirs, scene()...)...),
		audit.WrongRange, audit.NotHolder, audit.Unfenced, audit.NotHolder, audit.DuplicatePod, audit.NotHolder)
	// A fleet whose name begins with ours: its members' Leases look like those of shards.
	longer := of("kube-system", fleetName+"-cloud")
	requireKinds(t, check(t, append(append(theirs, longer), scene()...)...))
	// One of our shards' Leases with another label does not acquit its holder.
	forged := lease(lower, other, 1, 8, 1)
	forged["responseObject"].(map[string]any)["metadata"].(map[string]any)["labels"] = map[string]any{"flotilla.dev/fleet": fleetName + "-namespaces"}
	report := check(t, append(append(theirs[:1:1], forged), scene()...)...)
	requireKinds(t, report, audit.WrongRange, audit.NotHolder, audit.TermReused, audit.TakenEarly)
}

// TestLeaseElsewhere: a Lease that anybody may make, of another fleet by its label, does not acquit
// an incarnation that is one of ours by its member's Lease.
func TestLeaseElsewhere(t *testing.T) {
	const restorer = "velero/v1 (linux/amd64) kubernetes/abc"
	scene := takeover()
	scene["x"] = write(a, lower, 1, high, 16, 4.1)
	for _, fleet := range []string{fleetName, "armada"} {
		copied := jsonObject(scene["a 2"]["responseObject"].(map[string]any)).set("metadata", "name", fleet+"-member-flotilla-0").
			set("metadata", "labels", map[string]any{"flotilla.dev/fleet": fleet})
		scene["y"] = request("create", restorer, "coordination.k8s.io", "leases", "other", fleet+"-member-flotilla-0", 3).with("responseObject", map[string]any(copied))
		requireKinds(t, check(t, linesOf(scene)...), audit.WrongRange)
	}
}

// TestBuildOfOthers: programs that are no members may have the same User-Agent as one, or none.
func TestBuildOfOthers(t *testing.T) {
	const plain = "manager/v0.0.0 (linux/amd64) kubernetes/$Format"
	of := func(build string) []line {
		part := strings.TrimPrefix(strings.Replace(agent(a, lower, 1), client, build, 1), " ")
		return []line{lease(lower, a, 1, 10, 10).with("userAgent", strings.TrimPrefix(build+"/fleet-member/flotilla-0", "/")), by("shop", write(a, lower, 1, low, 20, 11)).with("userAgent", part)}
	}
	other := request("update", plain, "", "configmaps", low, "c", 12)
	for name, test := range map[string]struct {
		lines []line
		want  []audit.Kind
	}{
		"a member without a build, and another client": {lines: append(of(""), other.with("userAgent", "python/1").as("shop-2", "JTI=9"))},
		"builds without a commit, and another account": {lines: append(of(plain), by("shop-2", other))},
		"the same, of a stock leader's controllers": {lines: append(of(plain), waits(a, lockName), lock(stock, 4, 0.5).with("userAgent", plain),
			lock("", 5, 0.7).with("userAgent", plain), lock(lockHolder, 6, 1), other.as("shop", "JTI=9"))},
		"the same, and the member's account": {lines: append(of(plain), by("shop", other)), want: []audit.Kind{audit.Unfenced}},
	} {
		t.Run(name, func(t *testing.T) { requireKinds(t, check(t, test.lines...), test.want...) })
	}
}

// TestPlanOfTheFleet: a plan that is not a valid successor is a violation if members of any binary
// write it, and not if anybody else does.
func TestPlanOfTheFleet(t *testing.T) {
	halves, split, _ := plans(t)
	split.Generation = 1
	const pod = "kube-controller-manager/v1.37.1 (linux/amd64) kubernetes/fedcba9"
	log := []line{planLease(t, halves, 5, 0), waits(a, "").with("userAgent", pod+"/fleet-member/x")}
	requireKinds(t, checkPlan(t, halves, append(log, planLease(t, split, 6, 1).with("userAgent", pod+"/flotilla-cli"))...), audit.WrongLayout)
	requireKinds(t, checkPlan(t, halves, append(log, planLease(t, split, 6, 1).with("userAgent", user))...))
}
