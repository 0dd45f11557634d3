package flotilla

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestWritesOutsideTheRangeAreRefused(t *testing.T) {
	f := newFleet(t, nil)
	f.config.Transport = answers{}
	s, mine, foreign := shardOf(t, f)
	clientOf := func(c *rest.Config) *http.Client {
		client, err := rest.HTTPClientFor(c)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	limited, free := clientOf(s.Config()), clientOf(s.AnyNamespace())
	for request, refused := range map[string]bool{
		"POST /api/v1/namespaces/MINE/configmaps":                    false,
		"PATCH /api/v1/namespaces/MINE/pods/a/status":                false,
		"GET /api/v1/namespaces/FOREIGN/configmaps/a":                false,
		"GET /api/v1/configmaps":                                     false,
		"POST /api/v1/namespaces/FOREIGN/configmaps":                 true,
		"PUT /api/v1/namespaces/FOREIGN/configmaps/a":                true,
		"PATCH /apis/apps/v1/namespaces/FOREIGN/deployments/a/scale": true,
		"DELETE /api/v1/namespaces/FOREIGN/pods":                     true,
		"PUT /api/v1/namespaces/MINE/finalize":                       false,
		"PUT /api/v1/namespaces/FOREIGN/finalize":                    true,
		"DELETE /api/v1/namespaces/FOREIGN":                          true,
		"POST /api/v1/namespaces":                                    false,
		"PATCH /api/v1/persistentvolumes/a":                          false,
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews":    false,
		"POST /api/v1/namespaces/FOREIGN/events":                     false,
		"PATCH /apis/events.k8s.io/v1/namespaces/FOREIGN/events/a":   false,
		"POST /apis/example.com/v1/namespaces/FOREIGN/events":        true,
	} {
		request = strings.NewReplacer("MINE", mine, "FOREIGN", foreign).Replace(request)
		err := send(t.Context(), limited, request)
		if errors.Is(err, ErrOutside) != refused || !refused && err != nil {
			t.Errorf("%s: the error is %v, want it refused: %v", request, err, refused)
		}
		if refused && (!strings.Contains(err.Error(), foreign) || !strings.Contains(err.Error(), "controller issuer on namespaces/00")) {
			t.Errorf("%s: the error names neither namespace nor controller: %v", request, err)
		}
		if err := send(t.Context(), free, request); err != nil {
			t.Errorf("%s is refused though any namespace is allowed: %v", request, err)
		}
	}
	s.work.Shard = shard.Shard{ID: shard.ID{Ring: ClusterRing, Name: "x"}, Group: "x"}
	if err := send(t.Context(), clientOf(s.Config()), "POST /api/v1/namespaces/"+foreign+"/configmaps"); err != nil {
		t.Errorf("a singleton is refused: %v", err)
	}
}
