package listwatch

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Store is where a Reflector puts what it reads.
type Store interface {
	cache.TransformingStore
	cache.ReflectorBookmarkStore
	// Place returns the version up to which the store has everything, so that a watch can continue
	// there. It is empty if the store must be filled by a list.
	Place() string
}

// Reflection reads from the API server through client-go's Reflector.
//
// A Reflector lists again after a watch that failed in most ways, or that ended within a second
// without an event. An API server under load ends watches like that, those of all clients at once,
// and lists of everything are the last thing it needs then. A Reflection watches again from where
// the store is, and lists only if that fails as well.
type Reflection struct {
	From cache.ListerWatcher
	// Example is an object of the resource.
	Example runtime.Object
	// Name and Description are for logs.
	Name, Description string
}

// Run fills into until ctx ends. If into has a place, Run begins to watch there.
func (r Reflection) Run(ctx context.Context, into Store) {
	c := &continuing{Store: into, from: cache.ToListerWatcherWithContext(r.From)}
	lw := &cache.ListWatch{ListWithContextFunc: c.list, WatchFuncWithContext: c.watch}
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, r.From), r.Example, c, cache.ReflectorOptions{
		Name: r.Name, TypeDescription: r.Description, Clock: ending{ctx: ctx},
	})
	if into.Place() != "" {
		// The first time without the Reflector's pause: a list that turns out to be needed is
		// needed at once.
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
		}
	}
	if ctx.Err() == nil {
		reflector.RunWithContext(ctx)
	}
}

// patience is how many watches in a row may get no answer before a list is tried. With the
// Reflector's pauses that takes some minutes.
const patience = 10

// continuing stands between a Reflector and what it reads, and answers lists that are not needed.
type continuing struct {
	Store
	from cache.ListerWatcherWithContext

	// mu is needed for lists that are under way when the Reflector ends, which does not wait for
	// them.
	mu sync.Mutex
	// at is where the last list that was not needed had the Reflector watch; empty for none, and
	// after a list.
	at string
	// err is the answer to the last watch; nil if the watch began. unanswered counts watches that
	// got no answer since the store was at another place.
	err        error
	unanswered int
	// answered says that the last list was answered here.
	answered bool
}

func (c *continuing) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nextLocked()
}

// nextLocked returns where to watch instead of listing; empty if a list is needed.
func (c *continuing) nextLocked() string {
	place := c.Place()
	switch {
	case place == "":
		return ""
	case c.err != nil && !isUnanswered(c.err):
		return "" // for example, the version is too old
	case place != c.at:
		return place
	case c.err == nil: // the watch from there brought nothing and ended
		return ""
	case c.unanswered < patience:
		return place
	default:
		return ""
	}
}

// isUnanswered reports whether a watch failed because the server could not be reached or could not
// serve it at that moment.
func isUnanswered(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return (code >= http.StatusInternalServerError || code == http.StatusTooManyRequests) &&
			!apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	}
	var sending *url.Error
	return errors.As(err, &sending)
}

func (c *continuing) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if place := c.answer(); place != "" {
		return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: place}}, nil
	}
	return c.from.ListWithContext(ctx, options)
}

// answer returns where to watch instead of listing, and records it; empty if a list is needed.
func (c *continuing) answer() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	place := c.nextLocked()
	if c.answered = place != ""; c.answered && c.at != place {
		c.at, c.unanswered = place, 0
	}
	return place
}

// errContinues makes a Reflector ask for a list that is not a watch.
var errContinues = errors.New("there is nothing to list: the store is the list")

func (c *continuing) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if Streams(options) {
		if c.next() != "" {
			return nil, errContinues
		}
		return c.from.WatchWithContext(ctx, options)
	}
	w, err := c.from.WatchWithContext(ctx, options)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err = err; err != nil {
		c.unanswered++
	}
	return w, err
}

// Replace implements cache.ReflectorStore.
func (c *continuing) Replace(list []any, version string) error {
	c.mu.Lock()
	answered := c.answered
	c.answered = false
	c.mu.Unlock()
	if answered {
		return nil // by list, and the store has it all
	}
	if err := c.Store.Replace(list, version); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.err, c.unanswered = "", nil, 0
	return nil
}
