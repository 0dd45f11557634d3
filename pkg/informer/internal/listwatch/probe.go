package listwatch

import (
	"context"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// ProbeFor is how long an answer of the server is believed. A watch lasts for minutes, so each
// reconnect asks again, and the many informers of a starting process ask once.
const ProbeFor = 30 * time.Second

const (
	// ProbeAgain is how long a failed probe is not repeated: an API server that has just started
	// refuses for a moment.
	ProbeAgain = time.Second
	// ProbeSelector is a valid selector that costs the server little.
	ProbeSelector = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x0000000000000001')"
	// ProbeNobody names no object, so that a server without shard selectors sends none either. From
	// its cache it would send all, Secrets with their data, whatever the limit.
	ProbeNobody = "metadata.name=flotilla-probe"
)

// Mode says who filters a resource by range.
type Mode string

const (
	// ServerSide: the API server honours shardSelector; the client checks again.
	ServerSide Mode = "server"
	// ClientSide: the server sends everything and the client drops the rest.
	ClientSide Mode = "client"
)

// Prober finds out, for each resource, whether the API server honours shardSelector. Only the
// answer to a list says so (metadata.shardInfo): a server that does not know the parameter ignores
// it, and a watch never shows it.
//
// The list of a resource that is not built in need not say so either, even if the server filters
// it: a custom resource's list does not. So the prober asks its reader for one object of each half
// of the keyspace: a server that ignores the selector sends the same object first for both, since
// lists are in the order of names. That needs an object. While there is none, or no such resource,
// it asks about pods instead, if it may list those. An answer that is wrong because objects come
// and go meanwhile only costs requests.
type Prober struct {
	kinds *Kinds
	clock interface{ Now() time.Time }

	mu      sync.Mutex
	answers map[Form]*answer
	modes   map[Form]Mode
}

// Form is what an answer is about: a resource and, where the clientset does not read it, the type
// it is read as, since a reader may not pass the selector on.
type Form struct {
	Resource schema.GroupVersionResource
	Object   reflect.Type // nil for the clientset's
}

var podsResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// KeyspaceHalves are the two ranges that the prober compares.
var KeyspaceHalves = []shard.Range{{End: 1 << 63}, {Start: 1 << 63}}

// answer is what the server said about one resource.
type answer struct {
	// turn is held while asking, so that one request serves all who wait. It is a channel because a
	// waiter may have to stop.
	turn chan struct{}
	// mode is the server's last answer; ClientSide until there is one.
	mode Mode
	// known says that the server has answered at all.
	known bool
	until time.Time
}

// NewProber returns a Prober that has asked nothing yet. c measures how old an answer is.
func NewProber(k *Kinds, c interface{ Now() time.Time }) *Prober {
	return &Prober{kinds: k, clock: c, answers: map[Form]*answer{}, modes: map[Form]Mode{}}
}

// Honoured reports whether the server filters what is read, by its last answer. If the server
// cannot be asked, the last answer holds; before the first answer the client filters, which is
// always right.
func (p *Prober) Honoured(ctx context.Context, of Form, read Reader) bool {
	mode, _ := p.Mode(ctx, of, read)
	return mode == ServerSide
}

// Mode returns who filters what read reads, and whether the server has answered that. For a
// built-in resource it asks with the clientset, whatever reads it.
func (p *Prober) Mode(ctx context.Context, of Form, read Reader) (mode Mode, known bool) {
	if entry, ok := p.kinds.ByResource[of.Resource]; ok && of.Object == nil {
		return p.modeOf(ctx, of, func(ctx context.Context) (Mode, error) { return p.ask(ctx, entry) })
	}
	return p.modeOf(ctx, of, func(ctx context.Context) (Mode, error) { return p.compare(ctx, read) })
}

// modeOf asks and returns the answer, or returns the last one if that is not old.
func (p *Prober) modeOf(
	ctx context.Context, of Form, ask func(context.Context) (Mode, error),
) (mode Mode, known bool) {
	a := p.answerFor(of)
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return ClientSide, false
	}
	if p.clock.Now().Before(a.until) {
		return a.mode, a.known
	}
	asked, err := ask(ctx)
	if ctx.Err() != nil {
		// The caller has given up, which says nothing about the server.
		return ClientSide, false
	}
	p.note(ctx, of, a, asked, err)
	return a.mode, a.known
}

// note records an answer of the server, or the lack of one, in a, whose turn the caller holds.
func (p *Prober) note(ctx context.Context, of Form, a *answer, asked Mode, err error) {
	logger, now := klog.FromContext(ctx).WithValues("resource", of.Resource), p.clock.Now()
	if err != nil {
		a.until = now.Add(ProbeAgain)
		logger.V(2).Info("Could not probe for sharded list and watch", "filteredBy", a.mode, "known", a.known, "err", err)
	} else {
		if asked != a.mode || !a.known {
			logger.V(2).Info("Probed for sharded list and watch", "filteredBy", asked)
		}
		a.mode, a.known, a.until = asked, true, now.Add(ProbeFor)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.modes[of] = a.mode
}

func (p *Prober) ask(ctx context.Context, entry Kind) (Mode, error) {
	into := entry.newList()
	err := p.kinds.clients[entry.Resource.GroupVersion()].Get().Resource(entry.Resource.Resource).
		VersionedParams(&metav1.ListOptions{
			Limit: 1, ResourceVersion: "0", ShardSelector: ProbeSelector, FieldSelector: ProbeNobody}, scheme.ParameterCodec).
		Do(ctx).Into(into)
	if err != nil {
		return ClientSide, err
	}
	if echoes(into) {
		return ServerSide, nil
	}
	return ClientSide, nil
}

// echoes reports whether a list says that it was filtered.
func echoes(list runtime.Object) bool {
	if l, ok := list.(*unstructured.UnstructuredList); ok {
		_, echoed, err := unstructured.NestedMap(l.Object, "metadata", "shardInfo")
		return echoed && err == nil
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return false
	}
	sharded, ok := accessor.(metav1.ShardedListInterface)
	return ok && sharded.GetShardInfo() != nil
}

// compare asks for one object of each half of the keyspace.
func (p *Prober) compare(ctx context.Context, read Reader) (Mode, error) {
	empty := true
	for _, half := range KeyspaceHalves {
		list, err := read.List(ctx, metav1.ListOptions{Limit: 1, ShardSelector: half.Selector()})
		if apierrors.IsNotFound(err) {
			break // as good as empty
		}
		if err != nil {
			return ClientSide, err
		}
		if echoes(list) {
			return ServerSide, nil
		}
		outside := false
		err = meta.EachListItem(list, func(obj runtime.Object) error {
			accessor, err := meta.Accessor(obj)
			if err != nil {
				return err
			}
			empty, outside = false, outside || !half.ContainsNamespace(accessor.GetNamespace())
			return nil
		})
		if err != nil || outside {
			return ClientSide, err
		}
	}
	if !empty {
		return ServerSide, nil
	}
	pods := p.kinds.ByResource[podsResource]
	mode, _ := p.modeOf(ctx, Form{Resource: podsResource}, func(ctx context.Context) (Mode, error) {
		return p.ask(ctx, pods)
	})
	return mode, nil
}

func (p *Prober) answerFor(of Form) *answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.answers[of]
	if !ok {
		a = &answer{turn: make(chan struct{}, 1), mode: ClientSide}
		p.answers[of] = a
	}
	return a
}

// Modes returns who filters, for every resource that was asked about. If that depends on how the
// resource is read, it is the client.
func (p *Prober) Modes() map[schema.GroupVersionResource]Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	modes := make(map[schema.GroupVersionResource]Mode, len(p.modes))
	for of, mode := range p.modes {
		if modes[of.Resource] != ClientSide {
			modes[of.Resource] = mode
		}
	}
	return modes
}
