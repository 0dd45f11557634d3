//go:build !plant_event_dropped

package plant

// DropEvent tells whether an informer is to pass over the event at hand: one in fifty.
func DropEvent() bool { return false }
