// Package leasetest is an in-memory API server for Leases, for tests: a store, one client per
// member, and faults as methods of the client. It is meant for testing/synctest bubbles, where
// delays take no real time; a [Bubble] has a store, a transcript and processes.
//
// It models optimistic concurrency by resourceVersion, versions that increase across all Leases,
// UIDs, which names an object may have, lists and watches from a version, watch-list with its
// bookmark, the server's own time of the last renewal, the limit on annotations, and requests that
// the server executes although the client has given up on them. It does not model namespaces,
// selectors, or watches that expire by age.
package leasetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// maxAnnotations is how many bytes an object's annotations may have in total.
const maxAnnotations = 256 << 10

// Namespace of all Leases in a Store.
const Namespace = "kube-system"

// client-go's reflectors report errors to a global handler that sleeps depending on the time of the
// last error. Every bubble begins in the year 2000, so the second would sleep for as long as the
// first has run. This disables the handler in any program that imports this package.
func init() {
	utilruntime.ErrorHandlers = nil
}

var resource = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// Write is one change of a Lease.
type Write struct {
	// Time of the change.
	Time time.Time
	// Client that sent it; empty for Put, Tamper and Remove.
	Client string
	// Verb is create, update, or delete.
	Verb string
	// Before and After are the Lease; nil where it did not exist. They must not be changed.
	Before, After *coordinationv1.Lease
}

// Store holds Leases. Its methods are safe for concurrent use.
type Store struct {
	requests sync.WaitGroup // under way, including those that a client has given up on

	mu       sync.Mutex
	version  int64
	leases   map[string]*coordinationv1.Lease
	events   []watch.Event // Event i has version i+1.
	writes   []Write
	oldest   int64 // No watch can begin at an earlier version.
	watchers map[*watcher]struct{}
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{leases: make(map[string]*coordinationv1.Lease), watchers: make(map[*watcher]struct{})}
}

// Client returns a client without faults. name appears in the history.
func (s *Store) Client(name string) *Client {
	return newClient(s, name)
}

// Wait returns once every request has been executed, including those that clients have given up on.
// A test must end with it, after its last request: time stops in a bubble when the test returns.
func (s *Store) Wait() {
	s.requests.Wait()
}

// Get returns a copy of a Lease, or nil.
func (s *Store) Get(name string) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[name].DeepCopy()
}

// History returns all changes so far, in the order in which the store applied them.
func (s *Store) History() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// Put writes a Lease unconditionally, as an operator might.
func (s *Store) Put(lease *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put("", lease.DeepCopy())
}

// Tamper changes a Lease as an operator might, regardless of its holder. It returns false if there
// is none.
func (s *Store) Tamper(name string, change func(*coordinationv1.Lease)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.leases[name].DeepCopy()
	if lease == nil {
		return false
	}
	change(lease)
	s.put("", lease)
	return true
}

// Remove deletes a Lease as an operator might. It returns false if there is none.
func (s *Store) Remove(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.leases[name]
	if before == nil {
		return false
	}
	delete(s.leases, name)
	gone := before.DeepCopy()
	s.version++
	gone.ResourceVersion = strconv.FormatInt(s.version, 10)
	s.writes = append(s.writes, Write{Time: time.Now(), Verb: "delete", Before: before})
	s.publish(watch.Event{Type: watch.Deleted, Object: gone})
	return true
}

// BreakWatches ends all watches, as a restart of the server would.
func (s *Store) BreakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		w.stop()
	}
}

// Forget makes the store refuse watches from versions before the present, as a server does that has
// just started.
func (s *Store) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.version
}

func (s *Store) create(client string, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := validate(lease); err != nil {
		return nil, err
	}
	if s.leases[lease.Name] != nil {
		return nil, apierrors.NewAlreadyExists(resource, lease.Name)
	}
	return s.put(client, lease.DeepCopy()), nil
}

func (s *Store) update(client string, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := validate(lease); err != nil {
		return nil, err
	}
	before := s.leases[lease.Name]
	if before == nil {
		return nil, apierrors.NewNotFound(resource, lease.Name)
	}
	if lease.ResourceVersion != before.ResourceVersion || lease.UID != before.UID {
		return nil, apierrors.NewConflict(resource, lease.Name, fmt.Errorf("version %s is not %s", lease.ResourceVersion, before.ResourceVersion))
	}
	return s.put(client, lease.DeepCopy()), nil
}

func (s *Store) get(name string) (*coordinationv1.Lease, error) {
	lease := s.Get(name)
	if lease == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return lease, nil
}

func (s *Store) list() *coordinationv1.LeaseList {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.version, 10)}}
	for _, lease := range s.sorted() {
		list.Items = append(list.Items, *lease.DeepCopy())
	}
	return list
}

func (s *Store) sorted() []*coordinationv1.Lease {
	var leases []*coordinationv1.Lease
	for _, lease := range s.leases {
		leases = append(leases, lease)
	}
	slices.SortFunc(leases, func(a, b *coordinationv1.Lease) int { return strings.Compare(a.Name, b.Name) })
	return leases
}

// put stores lease and returns a copy.
func (s *Store) put(client string, lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	before := s.leases[lease.Name]
	event := watch.Event{Type: watch.Modified}
	write := Write{Time: time.Now(), Client: client, Verb: "update", Before: before, After: lease}
	lease.Namespace = Namespace
	lease.ResourceVersion = strconv.FormatInt(s.version, 10)
	if before == nil {
		event.Type, write.Verb = watch.Added, "create"
		lease.UID = types.UID("uid-" + lease.ResourceVersion)
		lease.CreationTimestamp = metav1.NewTime(time.Now())
	}
	if before == nil || !lease.Spec.RenewTime.Equal(before.Spec.RenewTime) {
		lease.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "leasetest", Operation: metav1.ManagedFieldsOperationUpdate, Time: ptr.To(metav1.Now().Rfc3339Copy()), FieldsV1: renewal(),
		}}
	} else {
		lease.ManagedFields = before.ManagedFields
	}
	s.leases[lease.Name] = lease
	s.writes = append(s.writes, write)
	event.Object = lease.DeepCopy()
	s.publish(event)
	return lease.DeepCopy()
}

// renewal returns the managed fields that the server records for a writer that changed the
// renewTime.
func renewal() *metav1.FieldsV1 {
	return metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)
}

func (s *Store) publish(event watch.Event) {
	s.events = append(s.events, event)
	for w := range s.watchers {
		w.enqueue(event)
	}
}

// watch starts a watch, with everything that precedes the first live event already in its queue.
func (s *Store) watch(ctx context.Context, client *Client, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := newWatcher(client)
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if initial || opts.ResourceVersion == "" || opts.ResourceVersion == "0" {
		for _, lease := range s.sorted() {
			w.enqueue(watch.Event{Type: watch.Added, Object: lease.DeepCopy()})
		}
	} else {
		from, err := strconv.ParseInt(opts.ResourceVersion, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if from < s.oldest {
			return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, s.oldest))
		}
		for _, event := range s.events[min(from, s.version):] {
			w.enqueue(event)
		}
	}
	if initial {
		end := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.FormatInt(s.version, 10),
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}
		w.enqueue(watch.Event{Type: watch.Bookmark, Object: end})
	}
	s.watchers[w] = struct{}{}
	go func() {
		w.pump(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}()
	return w, nil
}

func validate(lease *coordinationv1.Lease) error {
	spec := lease.Spec
	switch {
	case len(validation.IsDNS1123Subdomain(lease.Name)) > 0:
		return apierrors.NewBadRequest(fmt.Sprintf("name %q is no DNS subdomain", lease.Name))
	case spec.LeaseDurationSeconds != nil && *spec.LeaseDurationSeconds <= 0:
		return apierrors.NewBadRequest("leaseDurationSeconds must be greater than 0")
	case spec.LeaseTransitions != nil && *spec.LeaseTransitions < 0:
		return apierrors.NewBadRequest("leaseTransitions must not be negative")
	}
	size := 0
	for name, value := range lease.Annotations {
		size += len(name) + len(value)
	}
	if size > maxAnnotations {
		return apierrors.NewBadRequest(fmt.Sprintf("annotations are %d bytes, must be at most %d", size, maxAnnotations))
	}
	return nil
}
