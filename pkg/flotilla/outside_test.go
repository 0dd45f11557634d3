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
		"GET /api/v1/namespaces/MINE/pods/a/exec":                    false,
		"GET /api/v1/namespaces/FOREIGN/pods/a/exec":                 true,
		"GET /api/v1/namespaces/FOREIGN/services/a/proxy/do":         true,
		"GET /api/v1/namespaces/FOREIGN/pods/a/log":                  false,
		"GET /api/v1/nodes/a/proxy/run":                              false,
	} {
		request = strings.NewReplacer("MINE", mine, "FOREIGN", foreign).Replace(request)
		err := send(t.Context(), limited, request)
		if errors.Is(err, ErrOutside) != refused || !refused && err != nil {
			t.Errorf("%s: the error is %v, want it refused: %v", request, err, refused)
		}
		if refused && err != nil && (!strings.Contains(err.Error(), foreign) || !strings.Contains(err.Error(), "controller issuer on namespaces/00")) {
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

// TestServerWithAPath has a server whose address has a path that looks like the API's.
func TestServerWithAPath(t *testing.T) {
	for _, serverPath := range []string{"/k8s/clusters/c-1", "/api/clusters/c-1", "/apis/tenants/v1/t"} {
		var told []Access
		f := newFleetAt(t, "https://127.0.0.1:1"+serverPath+"/", func(o *Options) {
			o.Outside = func(a Access) { told = append(told, a) }
		})
		f.config.Transport = answers{}
		s, mine, foreign := shardOf(t, f)
		client, err := rest.HTTPClientFor(s.Config())
		if err != nil {
			t.Fatal(err)
		}
		for request, refused := range map[string]bool{
			"PUT MINE/configmaps/a": false, "PUT FOREIGN/configmaps/a": true, "GET FOREIGN/secrets": false,
			"GET MINE/pods/a/exec": false, "GET FOREIGN/pods/a/exec": true,
		} {
			told = nil
			outside := strings.Contains(request, "FOREIGN")
			request = strings.NewReplacer(
				"MINE", serverPath+"/api/v1/namespaces/"+mine,
				"FOREIGN", serverPath+"/api/v1/namespaces/"+foreign).Replace(request)
			if err := send(t.Context(), client, request); errors.Is(err, ErrOutside) != refused {
				t.Errorf("%s: the error is %v, want it refused: %t", request, err, refused)
			}
			if !outside && len(told) > 0 || outside && len(told) != 1 {
				t.Fatalf("%s: Outside received %+v, want it told: %t", request, told, outside)
			}
			if !outside {
				continue
			}
			_, path, _ := strings.Cut(request, " ")
			want := strings.TrimPrefix(path, serverPath)
			if a := told[0]; a.Namespace != foreign || a.Path != want || a.Writes() != refused {
				t.Errorf("%s: Outside received %+v, want %s in %s", request, a, want, foreign)
			}
		}
	}
}
