// Command stock prints the series that component-base's own provider makes of one workqueue.
package main

import (
	"fmt"
	"net/http/httptest"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

func main() {
	q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "q"})
	q.AddRateLimited("thing")
	item, _ := q.Get()
	q.Done(item)
	answer := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	fmt.Print(answer.Body)
}
