package events_test

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/events"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// A recorder is what observes a member: fleet.Config has it as Observe. Package flotilla does this
// for the programs that use it.
func Example() {
	sent := record.NewFakeRecorder(1) // a program's is that of an event broadcaster
	recorder := events.NewRecorder(events.Config{
		Fleet: "bosun", Member: "bosun-0", Namespace: "bosun",
		Events: sent, Count: func(fleet.Event) {}, Logger: klog.Background(),
	})
	config := fleet.Config{Observe: recorder.Observe}

	config.Observe(fleet.Event{
		ID: shard.ID{Ring: "backups", Name: "01"},
		Event: election.Event{
			Type: fleet.EventOverdue, Name: "bosun-backups-01", Term: 4, Duration: 2 * time.Second,
		},
	})
	said, why, _ := strings.Cut(<-sent.Events, ": ")
	fmt.Println(said)
	fmt.Println(why)
	// Output:
	// Warning DrainOverdue the controllers of term 4 were asked to stop and have not returned
	// their writes are refused, and the process ends in 2s unless they return
}
