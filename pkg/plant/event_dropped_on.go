//go:build plant_event_dropped

package plant

import "sync/atomic"

var events atomic.Uint64

// DropEvent tells whether an informer is to pass over the event at hand: one in fifty.
func DropEvent() bool { return events.Add(1)%50 == 0 }
