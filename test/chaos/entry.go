package main

import (
	"github.com/flotilla-kube/flotilla/test/harness"
)

// counts reports whether the write is real work, and not a heartbeat or an Event.
func counts(e *harness.Event) bool {
	return e.ObjectRef.Resource != "leases" && e.ObjectRef.Resource != "events"
}

// isCanary reports whether the event writes a canary.
func isCanary(e *harness.Event) bool {
	return e.ObjectRef.Resource == "replicasets" && e.ObjectRef.Name == canaryName
}
