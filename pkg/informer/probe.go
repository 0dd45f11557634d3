package informer

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
)

// probeFor is how long an answer of the server is believed. A watch lasts for
// minutes, so each reconnect asks again, and the many informers of a starting
// process ask once.
const probeFor = 30 * time.Second

const (
	// probeAgain is how long a probe that failed is not repeated: an API server that has just
	// started refuses for a moment.
	probeAgain = time.Second
	// probeSelector is a valid selector that costs the server little.
	probeSelector = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x0000000000000001')"
	// probeNobody names no object, so that a server that knows no shards sends none either: from its cache it would send all,
	// Secrets with their data, whatever the limit.
	probeNobody = "metadata.name=flotilla-probe"
)

// Mode says who filters a resource by range.
type Mode string

const (
	// ServerSide: the API server honours shardSelector; the client checks again.
	ServerSide Mode = "server"
	// ClientSide: the server sends everything and the client drops the rest.
	ClientSide Mode = "client"
)

// prober finds out, resource by resource, whether the API server honours
// shardSelector. Only the answer to a list says so (metadata.shardInfo): a server
// that does not know the parameter ignores it, and a watch never tells.
type prober struct {
	kinds *kinds
	clock Clock

	mu      sync.Mutex
	answers map[schema.GroupVersionResource]*answer
	modes   map[schema.GroupVersionResource]Mode
}

// answer is what the server said of one resource.
type answer struct {
	// turn is held while asking, so that one request serves all who wait. It is a
	// channel because who waits may have to stop.
	turn chan struct{}
	// mode is what it said last; ClientSide until it has.
	mode Mode
	// known says that the server has answered at all.
	known bool
	until time.Time
}

func newProber(k *kinds, c Clock) *prober {
	return &prober{kinds: k, clock: c,
		answers: map[schema.GroupVersionResource]*answer{}, modes: map[schema.GroupVersionResource]Mode{}}
}

// honoured reports whether the server filters gvr, by its last answer. One that cannot be asked
// has not changed its mind; before its first answer the client filters, which is always right.
func (p *prober) honoured(ctx context.Context, gvr schema.GroupVersionResource) bool {
	mode, _ := p.mode(ctx, gvr)
	return mode == ServerSide
}

// mode returns who filters gvr, and whether that is known from an answer of the server.
// Resources without a typed list (custom resources) never echo shardInfo though they are
// filtered alike: pods answer for them.
func (p *prober) mode(ctx context.Context, gvr schema.GroupVersionResource) (mode Mode, known bool) {
	entry, ok := p.kinds.byResource[gvr]
	if !ok {
		entry = p.kinds.byResource[schema.GroupVersionResource{Version: "v1", Resource: "pods"}]
	}
	a := p.answerFor(entry.Resource)
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return ClientSide, false
	}
	if p.clock.Now().Before(a.until) {
		return a.mode, a.known
	}
	asked, err := p.ask(ctx, entry)
	if ctx.Err() != nil {
		// Who asked has given up, which says nothing about the server.
		return ClientSide, false
	}
	p.note(ctx, entry.Resource, a, asked, err)
	return a.mode, a.known
}

// note takes an answer of the server, or the lack of one, into a, whose turn the caller holds.
func (p *prober) note(ctx context.Context, gvr schema.GroupVersionResource, a *answer, asked Mode, err error) {
	logger, now := klog.FromContext(ctx), p.clock.Now()
	if err != nil {
		a.until = now.Add(probeAgain)
		logger.V(2).Info("Could not probe for sharded list and watch", "resource", gvr, "filteredBy", a.mode, "known", a.known, "err", err)
	} else {
		if asked != a.mode || !a.known {
			logger.V(2).Info("Probed for sharded list and watch", "resource", gvr, "filteredBy", asked)
		}
		a.mode, a.known, a.until = asked, true, now.Add(probeFor)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.modes[gvr] = a.mode
}

func (p *prober) ask(ctx context.Context, entry kind) (Mode, error) {
	into := entry.newList()
	err := p.kinds.clients[entry.Resource.GroupVersion()].Get().Resource(entry.Resource.Resource).
		VersionedParams(&metav1.ListOptions{
			Limit: 1, ResourceVersion: "0", ShardSelector: probeSelector, FieldSelector: probeNobody}, scheme.ParameterCodec).
		Do(ctx).Into(into)
	if err != nil {
		return ClientSide, err
	}
	if list, err := meta.ListAccessor(into); err == nil {
		if sharded, ok := list.(metav1.ShardedListInterface); ok && sharded.GetShardInfo() != nil {
			return ServerSide, nil
		}
	}
	return ClientSide, nil
}

func (p *prober) answerFor(gvr schema.GroupVersionResource) *answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.answers[gvr]
	if !ok {
		a = &answer{turn: make(chan struct{}, 1), mode: ClientSide}
		p.answers[gvr] = a
	}
	return a
}

// snapshot returns who filters, for every resource that was asked for.
func (p *prober) snapshot() map[schema.GroupVersionResource]Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.modes)
}
