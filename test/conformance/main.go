// Command conformance runs upstream's own end-to-end specs (k8s.io/kubernetes/test/e2e, unchanged)
// on a real control plane with simulated nodes. It runs the same specs with the same flags twice:
// with the stock kube-controller-manager, and with a fleet of three members. Whatever passes with
// stock must pass with the fleet.
//
//	go run ./test/conformance            the kept list, with both; prints a table by SIG
//	go run ./test/conformance -short     a few quick specs of every family of controllers, with the fleet only
//	go run ./test/conformance -disturb   the kept list with the fleet only, while members are killed and restarted
//	go run ./test/conformance -generate  tries all candidates with stock, and writes the lists specs.txt and flaky.txt
//
// Run it in the repository, after `make tools`, `make build` and `hack/build-tools.sh e2e.test
// ginkgo`. Reports, JUnit and all logs go to _output/conformance.
//
// Both systems get the same raised client limits, so that specs do not spend their time waiting for
// them. The fleet's timings are the shipped ones.
//
// Exit status: 0 if the fleet passes whatever stock passes, 1 if not or if a spec of the list did
// not run, 2 for wrong usage.
//
// The code that decides is pure and has tests: packages spec and verdict, options.go and
// schedule.go.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/flotilla-kube/flotilla/test/command"
)

func main() {
	os.Exit(command.Main("conformance", parseFlags, func(ctx context.Context, o options) int {
		log.SetLogger(klog.Background())
		run := compare
		if o.generate {
			run = generate
		}
		if err := run(ctx, o); err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
			return command.Failed
		}
		return 0
	}))
}
