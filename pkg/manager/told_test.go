package manager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// handle is a handler that has received the existing objects once told is closed.
type handle struct {
	name string
	told chan struct{}
}

func (h handle) HasSynced() bool                          { return toolscache.IsDone(h) }
func (h handle) HasSyncedChecker() toolscache.DoneChecker { return h }
func (h handle) Name() string                             { return h.name }
func (h handle) Done() <-chan struct{}                    { return h.told }
func managerWith(ctx context.Context, h handle) *shardManager {
	m := newShardManager(ctx, &flotilla.Shard{})
	i := &shardInformer{m: m, registrations: map[*registration]struct{}{}}
	i.registrations[&registration{ResourceEventHandlerRegistration: h, of: i}] = struct{}{}
	m.informers = append(m.informers, i)
	return m
}

// TestAHandlerThatHangsIsNamed checks that the controllers begin in spite of the handler, but only
// after toldPatience.
func TestAHandlerThatHangsIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		ctx := klog.NewContext(t.Context(), logger)
		m := managerWith(ctx, handle{"enqueue", make(chan struct{})})
		var began time.Duration
		start := time.Now()
		close(m.owned)
		g := m.untilOwned(ctrlmanager.RunnableFunc(func(context.Context) error { began = time.Since(start); return nil }))
		if err := g.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if began != toldPatience {
			t.Errorf("the controller began after %v, want %v", began, toldPatience)
		}
		if len(lines) != 1 || !strings.Contains(lines[0], "enqueue") || !strings.Contains(lines[0], `"controller"`) {
			t.Errorf("the log has %q, want one line that names the handler", lines)
		}
	})
}

// TestHandlersAreWaitedFor checks that a handler that is only slow is not logged.
func TestHandlersAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, line string) { t.Errorf("logged %s", line) }, funcr.Options{}))
		h := handle{"enqueue", make(chan struct{})}
		m := managerWith(ctx, h)
		time.AfterFunc(toldPatience/2, func() { close(h.told) })
		start := time.Now()
		if err := m.told(ctx); err != nil || time.Since(start) != toldPatience/2 {
			t.Errorf("told returned %v after %v", err, time.Since(start))
		}
		ended, cancel := context.WithCancelCause(ctx)
		over := errors.New("over")
		cancel(over)
		if err := managerWith(ctx, handle{"enqueue", make(chan struct{})}).told(ended); !errors.Is(err, over) {
			t.Errorf("after the context's end it returned %v", err)
		}
	})
}
