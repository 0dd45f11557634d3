package flotilla_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Options that are not set have defaults. A fleet of ten members or more has more ranges, and one
// in a test waits for nothing.
func ExampleOptions() {
	large := flotilla.Options{
		Fleet: "certs", Namespace: "certs", Member: "certs-0", Ranges: 4 * flotilla.DefaultRanges,
	}
	test := flotilla.Options{
		Fleet: "certs", Namespace: "default", Member: "test", Ranges: 2,
		LeaderLockDelay: flotilla.Never, RebalanceDelay: flotilla.Never, ReplanInterval: flotilla.Never,
	}
	wrong := flotilla.Options{Fleet: "certs", Namespace: "certs", Member: "certs-0", Ranges: 2000}
	for _, options := range []flotilla.Options{large, test, wrong} {
		_, err := flotilla.New(&rest.Config{}, options)
		fmt.Println(err)
	}
	fmt.Println(flotilla.DefaultLeaderLockDelay, flotilla.DefaultRebalanceDelay, flotilla.DefaultReplanInterval)
	fmt.Println(flotilla.DefaultHandoffTimeout, flotilla.DefaultHandoffs)
	// Output:
	// <nil>
	// <nil>
	// flotilla: Options.Ranges is 2000: must be 1 to 1024
	// 500ms 10s 5m0s
	// 5s 4
}

// A program's own flag whose value 0 turns the planner off.
func ExampleOrNever() {
	interval := flag.Duration("replan-interval", flotilla.DefaultReplanInterval, "0 for never")
	options := flotilla.Options{ReplanInterval: flotilla.OrNever(*interval)}
	fmt.Println(options.ReplanInterval, flotilla.OrNever(0) == flotilla.Never)
	// Output: 5m0s true
}

// Shards are named after their rings, in metrics, in logs and by "flotilla status".
func Example_shards() {
	fmt.Println(shard.ID{Ring: flotilla.NamespacesRing, Name: "03"})
	fmt.Println(shard.ID{Ring: flotilla.ClusterRing, Name: "webhook-ca"})
	// Output:
	// namespaces/03
	// cluster/webhook-ca
}

// The shards that this process owns, for a page of the program's own.
func ExampleFleet_Member() {
	f, err := flotilla.New(&rest.Config{Host: "https://127.0.0.1:6443"}, flotilla.Options{
		Fleet: "certs", Namespace: "certs", Member: "certs-0",
	})
	if err != nil {
		log.Fatal(err)
	}
	member := f.Member()
	if member == nil {
		fmt.Println("not run yet")
		return
	}
	for _, s := range member.Shards() {
		fmt.Println(s.ID)
	}
	// Output: not run yet
}

// A test that fails if the program's controllers reach outside of their ranges.
func ExampleFleet_Check() {
	check := func(ctx context.Context, config *rest.Config) error { // of envtest or a test cluster
		f, err := flotilla.New(config, flotilla.Options{Fleet: "certs", Namespace: "default", Member: "test"})
		if err != nil {
			return err
		}
		f.Namespaced("issuer", newIssuer)
		report, err := f.Check(ctx, func(ctx context.Context) error {
			// Create objects in several namespaces, and wait until the controller has dealt with
			// them.
			return issueSomeCertificates(ctx, "alpha", "omega")
		})
		if err != nil {
			return err
		}
		return report.Err(nil)
	}
	_ = check
}

func issueSomeCertificates(context.Context, ...string) error { return nil }

// A report as text.
func ExampleReport() {
	report := flotilla.Report{
		Findings: []flotilla.Finding{{
			Access: flotilla.Access{
				Controller: "issuer", Shard: shard.ID{Ring: flotilla.NamespacesRing, Name: "00"},
				Method: "PUT", Verb: "update", Resource: secrets, Namespace: "vault",
			},
			Count: 3, Caller: "(*Issuer).store (issuer.go:71)",
		}},
		Idle: []shard.ID{{Ring: flotilla.NamespacesRing, Name: "01"}},
	}
	fmt.Print(report.String())
	// Output:
	// one kind of request outside of the ranges
	// - issuer: update secrets in namespace vault, 3 times, in (*Issuer).store (issuer.go:71)
	//   Two owners could write there, so Shard.Config refuses it: leave it to a controller of that namespace, or make this one a singleton.
	//   See docs/library.md#what-must-be-true-of-your-controller
	// - On namespaces/01 the controllers have written nothing, so nothing is known of it.
	//   Work on more namespaces, whose names differ in their first letters.
	//   See docs/library.md#from-one-leader-to-a-fleet-in-ten-steps
}

// A Secret that is read from another namespace on purpose is left out.
func ExampleReport_Err() {
	read := flotilla.Finding{
		Access: flotilla.Access{
			Controller: "issuer", Method: "GET", Verb: "get", Resource: secrets, Namespace: "vault",
		},
		Count: 1,
	}
	report := flotilla.Report{Findings: []flotilla.Finding{read}}
	fmt.Println(report.Err(func(f flotilla.Finding) bool {
		return !f.Writes() && f.Resource == secrets && f.Namespace == "vault"
	}))
	fmt.Println(read)
	fmt.Println(read.Advice())
	// Output:
	// <nil>
	// issuer: get secrets in namespace vault, once
	// The answer is current, but no event follows when the object changes. If one must, make this a singleton.
	// See docs/library.md#what-must-be-true-of-your-controller
}

// A program that logs requests outside of the range as long as it runs.
func ExampleAccess() {
	options := flotilla.Options{Fleet: "certs", Namespace: "certs", Member: "certs-0"}
	options.Outside = func(a flotilla.Access) {
		if a.Writes() {
			log.Printf("%s on %s: %s %s", a.Controller, a.Shard, a.Verb, a.Path)
		}
	}
	if _, err := flotilla.New(&rest.Config{}, options); err != nil {
		log.Fatal(err)
	}
}

// A controller that only looks every minute needs no more than a function.
func ExampleRunnableFunc() {
	var controller flotilla.Runnable = flotilla.RunnableFunc(func(ctx context.Context) error {
		ticker := time.NewTicker(time.Minute)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				// Look, and do what is necessary.
			case <-ctx.Done():
				return nil // everything that was started has ended
			}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fmt.Println(controller.Run(ctx))
	// Output: <nil>
}
