package controllers

import (
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/flotilla-kube/flotilla/pkg/controllers/requests"
)

// TestClientsCountTheirRequests checks that a controller's requests count, and discovery does not.
func TestClientsCountTheirRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	builder := clientBuilder{
		base:  clientbuilder.SimpleControllerClientBuilder{ClientConfig: &rest.Config{Host: server.URL}},
		fence: transport.Wrappers(), controller: "job-controller", limits: newLimits(nil),
	}
	client, err := builder.Client("job-controller")
	if err != nil {
		t.Fatal(err)
	}
	before := requests.Answered()
	if _, err := client.CoreV1().Pods("a").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the request is not refused")
	}
	after := requests.Answered()
	if after.All != before.All+1 || after.Errors != before.Errors+1 {
		t.Errorf("from %+v to %+v, want one request more, and one error", before, after)
	}
	discovery, err := builder.DiscoveryClient("job-controller")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := discovery.ServerVersion(); err == nil {
		t.Error("discovery is not refused")
	}
	if got := requests.Answered(); got != after {
		t.Errorf("discovery is counted: from %+v to %+v", after, got)
	}
}
