package election

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"
)

var _ cache.ResourceVersionUpdater = sink{}

// sink adapts the Observer to a reflector's store.
type sink struct {
	observer *Observer
}

func (s sink) Add(obj any) error {
	lease, err := asLease(obj)
	if err != nil {
		return err
	}
	s.observer.Observe(lease)
	return nil
}

func (s sink) Update(obj any) error {
	return s.Add(obj)
}

// Delete relies on the event's resourceVersion being that of the deletion, which is newer than any
// of the object's versions.
func (s sink) Delete(obj any) error {
	lease, err := asLease(obj)
	if err != nil {
		return err
	}
	s.observer.deleted(lease.Name, lease.ResourceVersion)
	return nil
}

func (s sink) Replace(objs []any, version string) error {
	leases := make([]*coordinationv1.Lease, 0, len(objs))
	for _, obj := range objs {
		lease, err := asLease(obj)
		if err != nil {
			return err
		}
		leases = append(leases, lease)
	}
	s.observer.replace(leases, version)
	return nil
}

// UpdateResourceVersion is called after each event, bookmarks included, with its version. It
// implements cache.ResourceVersionUpdater.
func (s sink) UpdateResourceVersion(version string) {
	s.observer.progressed(version)
}

func (sink) Resync() error {
	return nil
}

func asLease(obj any) (*coordinationv1.Lease, error) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return nil, fmt.Errorf("watch brought a %T, must be a Lease", obj)
	}
	return lease, nil
}
