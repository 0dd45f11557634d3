package informer

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// refusing is a reader whose server refuses every request.
type refusing struct{ with error }

// List implements listwatch.Reader.
func (r refusing) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return nil, r.with
}

// Watch implements listwatch.Reader.
func (r refusing) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, r.with
}

// TestShutdownDoesNotWaitForRetries shuts down factories that have failed to list for a while and
// are waiting to retry.
func TestShutdownDoesNotWaitForRetries(t *testing.T) {
	for name, refusal := range map[string]error{
		"connection refused": syscall.ECONNREFUSED,
		"too many requests":  apierrors.NewTooManyRequests("busy", 1),
	} {
		for _, filters := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, _ := halves(t, newTestPool(t, &apiServer{shards: filters}, clock.RealClock{}, 0))
					f.reading(configMaps, refusing{refusal}, &v1.ConfigMap{})
					f.reading(nodes, refusing{refusal}, &v1.Node{})
					f.StartWithContext(t.Context())
					time.Sleep(20 * time.Second) // virtual
					synctest.Wait()
					began := time.Now()
					f.Shutdown()
					if took := time.Since(began); took > 0 {
						t.Errorf("the server filters: %t: Shutdown took %v, want it to end pauses", filters, took)
					}
				})
			})
		}
	}
}
