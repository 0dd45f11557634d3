package resources

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// server serves aggregated discovery of a few kinds of one group, with entity tags.
type server struct {
	mu sync.Mutex
	// kinds lists the kinds of each backend. Requests go to the backends in turn, as through a load
	// balancer.
	kinds [][]string
	// stale makes the group's own API server not answer.
	stale bool
	// tag returns the tag of a document; nil for no tags.
	tag func(document []byte) string
	// asked counts requests, told those that were answered with a document.
	asked, told int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	groups := apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
	}
	if strings.HasSuffix(r.URL.Path, "/apis") {
		version := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		if s.stale {
			version.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		}
		for _, kind := range s.kinds[s.asked/2%len(s.kinds)] { // A question is two requests.
			version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: kind, Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"list"},
				ResponseKind: &metav1.GroupVersionKind{Group: "g", Version: "v1", Kind: kind},
			})
		}
		groups.Items = []apidiscoveryv2.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: "g"}, Versions: []apidiscoveryv2.APIVersionDiscovery{version},
		}}
	}
	s.asked++
	document, err := json.Marshal(groups)
	if err != nil {
		panic(err)
	}
	if s.tag != nil {
		tag := s.tag(document)
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	s.told++
	w.Header().Set("Content-Type", discovery.AcceptV2)
	_, _ = w.Write(document)
}

// counts returns the numbers of requests and of documents since the last call.
func (s *server) counts() (asked, told int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, told = s.asked, s.told
	s.asked, s.told = 0, 0
	return asked, told
}

func quoted(document []byte) string {
	return fmt.Sprintf("%q", fmt.Sprint(len(document), string(document[len(document)/2:])))
}

// start returns a client that uses the cache.
func (s *server) start(t *testing.T, cache *Cache) discovery.DiscoveryInterface {
	t.Helper()
	return s.startAt(t, cache, "")
}

// startAt is start with a path before the API's paths.
func (s *server) startAt(t *testing.T, cache *Cache, base string) discovery.DiscoveryInterface {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	client, err := cache.Client(&rest.Config{Host: web.URL + base})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kinds returns the names of all resources that the client gets.
func kinds(t *testing.T, client discovery.ServerResourcesInterface) []string {
	t.Helper()
	preferred, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	return names(preferred)
}

func names(lists []*metav1.APIResourceList) []string {
	var names []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestAnswerIsReadOnce(t *testing.T) {
	s := &server{kinds: [][]string{{"apples", "pears"}}, tag: quoted}
	var cache Cache
	first, second := s.start(t, &cache), s.start(t, &cache)
	for i, client := range []discovery.DiscoveryInterface{first, second, first} {
		if got := kinds(t, client); !slices.Equal(got, []string{"apples", "pears"}) {
			t.Errorf("question %d: %v", i, got)
		}
		if asked, told := s.counts(); asked != 2 || (told > 0) != (i == 0) {
			t.Errorf("question %d: %d requests, %d with a document", i, asked, told)
		}
	}
	namespaced, err := second.ServerPreferredNamespacedResources()
	if got := names(namespaced); err != nil || !slices.Equal(got, []string{"apples", "pears"}) {
		t.Errorf("namespaced: %v, %v", got, err)
	}
	if _, told := s.counts(); told > 0 {
		t.Error("namespaced resources are not taken from the same answer")
	}
	for i := range 2 {
		groups, lists, err := first.ServerGroupsAndResources()
		if got := names(lists); err != nil || len(groups) == 0 || !slices.Equal(got, []string{"apples", "pears"}) {
			t.Errorf("all, question %d: %v in %d groups, %v", i, got, len(groups), err)
		}
		if _, told := s.counts(); (told > 0) != (i == 0) {
			t.Errorf("all, question %d: %d documents", i, told)
		}
	}
}

// TestServerBehindAPath uses API servers behind a proxy's path, like those of hosted clusters.
func TestServerBehindAPath(t *testing.T) {
	s := &server{kinds: [][]string{{"apples"}}, tag: quoted}
	client := s.startAt(t, &Cache{}, "/clusters/one")
	for i := range 2 {
		if got := kinds(t, client); !slices.Equal(got, []string{"apples"}) {
			t.Errorf("question %d: %v", i, got)
		}
		if asked, told := s.counts(); asked != 2 || (told > 0) != (i == 0) {
			t.Errorf("question %d: %d requests, %d with a document", i, asked, told)
		}
	}
}

func TestChangeIsToldAtOnce(t *testing.T) {
	s := &server{kinds: [][]string{{"apples"}}, tag: quoted}
	client := s.start(t, &Cache{})
	for i, want := range [][]string{{"apples"}, {"apples", "pears"}, {"pears"}, {"pears"}} {
		s.kinds = [][]string{want}
		if got := kinds(t, client); !slices.Equal(got, want) {
			t.Errorf("question %d: %v, want %v", i, got, want)
		}
	}
}

// TestServersThatDiffer has two API servers of different versions behind one address. A tag and its
// answer must come from the same one.
func TestServersThatDiffer(t *testing.T) {
	s := &server{kinds: [][]string{{"apples"}, {"pears"}}, tag: quoted}
	client := s.start(t, &Cache{})
	for i := range 20 {
		kinds(t, client)
		s.mu.Lock()
		one := [][]string{{"apples"}, {"pears"}}[i%2]
		s.kinds = [][]string{one}
		s.mu.Unlock()
		if got := kinds(t, client); !slices.Equal(got, one) {
			t.Fatalf("question %d: %v, want %v", i, got, one)
		}
		s.mu.Lock()
		s.kinds = [][]string{{"apples"}, {"pears"}}
		s.mu.Unlock()
	}
}

func TestOnlyWhatIsCompleteIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		stale bool
		tag   func([]byte) string
	}{
		"a group does not answer": {true, quoted},
		"no tags":                 {false, nil},
		"tags that say nothing":   {false, func([]byte) string { return untagged }},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{kinds: [][]string{{"apples"}}, stale: tc.stale, tag: tc.tag}
			client := s.start(t, &Cache{})
			for i := range 3 {
				_, err := client.ServerPreferredResources()
				if tc.stale != discovery.IsGroupDiscoveryFailedError(err) {
					t.Errorf("question %d: %v", i, err)
				}
				if asked, told := s.counts(); told != asked || !tc.stale && asked != 2 { // Upstream repeats the request for a group that fails.
					t.Errorf("question %d: %d requests, %d with a document", i, asked, told)
				}
			}
			s.stale = false
			if got := kinds(t, client); !slices.Equal(got, []string{"apples"}) {
				t.Errorf("afterwards: %v", got)
			}
		})
	}
}

func TestAnswerBelongsToTheCaller(t *testing.T) {
	s := &server{kinds: [][]string{{"apples", "pears"}}, tag: quoted}
	client := s.start(t, &Cache{})
	for range 3 {
		lists, err := client.ServerPreferredResources()
		if got := names(lists); err != nil || !slices.Equal(got, []string{"apples", "pears"}) {
			t.Fatalf("%v, %v", got, err)
		}
		for _, list := range lists {
			// As the monitors of package garbage do.
			list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "apples" })
		}
	}
}

// TestErrorsAreTold checks that a cached answer does not hide that the API server is out of reach.
func TestErrorsAreTold(t *testing.T) {
	s := &server{kinds: [][]string{{"apples"}}, tag: quoted}
	web := httptest.NewServer(s)
	client, err := (&Cache{}).Client(&rest.Config{Host: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	kinds(t, client)
	web.Close()
	if lists, err := client.ServerPreferredResources(); err == nil {
		t.Errorf("no error, and %v", names(lists))
	}
}
