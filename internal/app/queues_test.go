package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
)

// TestQueuesFindTheirShard fails if another package in the binary has become the provider of the
// workqueues' metrics. The provider that is initialised first wins; package queues explains why it
// must be this one.
func TestQueuesFindTheirShard(t *testing.T) {
	g := queues.NewGroup("cluster", "garbage")
	defer queues.Forget("cluster", "garbage")
	g.Do(func() {
		q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "in-a-shard"})
		defer q.ShutDown()
		q.Add("thing")
		q.Get()
	})
	answer := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	for _, want := range []string{`flotilla_shard_queue_duration_seconds_count{ring="cluster",shard="garbage"} 1`, `workqueue_adds_total{name="in-a-shard"} 1`} {
		if !strings.Contains(answer.Body.String(), want+"\n") {
			t.Errorf("/metrics has no %s", want)
		}
	}
}
