package main

import (
	"github.com/flotilla-kube/flotilla/test/harness"
)

// counts reports whether it is a write that somebody wants for its own sake: no sign of life, no
// record of an event.
func counts(e *harness.Event) bool {
	return e.ObjectRef.Resource != "leases" && e.ObjectRef.Resource != "events"
}

// isCanary reports whether it is a write of a canary.
func isCanary(e *harness.Event) bool {
	return e.ObjectRef.Resource == "replicasets" && e.ObjectRef.Name == canaryName
}
