package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// ObjectExplained is the object asked for. It need not exist.
type ObjectExplained struct {
	// Resource is "<plural>.<group>", or the plural alone for the core group.
	Resource   string `json:"resource"`
	Name       string `json:"name"`
	Namespaced bool   `json:"namespaced"`
}

// GroupExplained is a group that decides over the object.
type GroupExplained struct {
	Ring string `json:"ring"`
	// Deciding are the group's controllers that decide over objects of this type.
	Deciding []string `json:"deciding"`
	status.ShardView
}

// resourceType is a type of objects that the API server serves.
type resourceType struct {
	schema.GroupResource
	namespaced bool
}

var namespaces = schema.GroupResource{Resource: "namespaces"}

// resourceTypeOf returns the type that a word means to kubectl: plural, singular, kind or short
// name, with or without version and group. It asks the API server for everything that it serves.
func resourceTypeOf(ctx context.Context, client discovery.DiscoveryInterface, word string) (resourceType, error) {
	cached := memory.NewMemCacheClientWithContext(discovery.ToDiscoveryInterfaceWithContext(client))
	served, err := restmapper.GetAPIGroupResourcesWithContext(ctx, cached)
	if err != nil {
		return resourceType{}, fmt.Errorf("asking the API server which types it serves: %w", err)
	}
	mapper := restmapper.NewShortcutExpanderWithContext(restmapper.NewDiscoveryRESTMapperWithContext(served), cached, nil)
	versioned, unversioned := schema.ParseResourceArg(strings.ToLower(word))
	wanted := []schema.GroupVersionResource{unversioned.WithVersion("")}
	if versioned != nil {
		wanted = append([]schema.GroupVersionResource{*versioned}, wanted...)
	}
	for _, resource := range wanted {
		var found schema.GroupVersionResource
		if found, err = mapper.ResourceForWithContext(ctx, resource); err != nil {
			continue
		}
		var kind schema.GroupVersionKind
		if kind, err = mapper.KindForWithContext(ctx, found); err != nil {
			continue
		}
		var mapping *meta.RESTMapping
		if mapping, err = mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version); err == nil {
			return resourceType{found.GroupResource(), mapping.Scope.Name() == meta.RESTScopeNameNamespace}, nil
		}
	}
	return resourceType{}, fmt.Errorf("TYPE %q: must be a type that the API server serves, see 'kubectl api-resources': %w", word, err)
}

// checkObject returns why a text is not TYPE/NAME.
func checkObject(text string) error {
	word, name, _ := strings.Cut(text, "/")
	if word == "" || name == "" {
		return fmt.Errorf("TYPE/NAME %q: must have both, as deployment/web has", text)
	}
	if faults := content.IsPathSegmentName(name); len(faults) > 0 {
		return fmt.Errorf("TYPE/NAME %q: the name %s", text, strings.Join(faults, ", "))
	}
	return nil
}

// ExplainObject returns who runs the controllers of an object of this type, by the plan and the
// Leases. namespace is the object's, and ignored for a cluster-scoped type. deciding returns the
// controllers that decide over its type.
func ExplainObject(r *status.Reading, of resourceType, namespace, name string, deciding func(schema.GroupResource, bool, shard.Plan) []string) (Explanation, error) {
	if r.Fault != nil {
		return Explanation{}, r.Problem()
	}
	e := Explanation{Generation: r.Plan.Generation, Warnings: status.Warnings(r), now: r.Now}
	switch {
	case of.GroupResource == namespaces:
		namespace = name
	case !of.namespaced:
		namespace = ""
	}
	if namespace != "" {
		var err error
		if e, err = Explain(r, namespace); err != nil {
			return Explanation{}, err
		}
	}
	e.Object = &ObjectExplained{Resource: of.String(), Name: name, Namespaced: of.namespaced}
	if deciding == nil {
		return e, nil
	}
	missing := deciding(of.GroupResource, of.namespaced, r.Plan)
	for i := range e.Rings {
		e.Rings[i].Deciding, missing = split2(missing, e.Rings[i].Controllers)
	}
	older := r.Older()
	for _, s := range r.Plan.Shards() {
		if s.Namespaced() {
			continue
		}
		var here []string
		if here, missing = split2(missing, s.Controllers); len(here) > 0 {
			e.Groups = append(e.Groups, GroupExplained{Ring: s.Ring, Deciding: here, ShardView: status.ViewShard(r, s, older)})
		}
	}
	// Controllers of ranges do not decide over cluster-scoped objects.
	for _, ring := range r.Plan.Rings {
		if namespace == "" {
			e.Elsewhere, missing = appendSplit(e.Elsewhere, missing, ring.Controllers)
		}
	}
	e.Missing = missing
	return e, nil
}

// split2 returns those of the names that are among the others, and those that are not.
func split2(names, among []string) (in, out []string) {
	for _, name := range names {
		if slices.Contains(among, name) {
			in = append(in, name)
		} else {
			out = append(out, name)
		}
	}
	return in, out
}

func appendSplit(to, names, among []string) (in, out []string) {
	more, out := split2(names, among)
	return append(to, more...), out
}

// tableObject writes the first lines about an object for people.
func tableObject(w io.Writer, e Explanation) {
	what := e.Object.Resource + "/" + e.Object.Name
	switch {
	case e.Object.Namespaced:
		fmt.Fprintf(w, "Object %s of namespace %s, hash %s, plan generation %d\n", what, e.Namespace, e.Hash, e.Generation)
	case e.Namespace != "":
		fmt.Fprintf(w, "Object %s, hash %s, plan generation %d\n", what, e.Hash, e.Generation)
	default:
		fmt.Fprintf(w, "Object %s, of no namespace, plan generation %d\n", what, e.Generation)
	}
}

// tableGroups writes the groups that decide over an object for people.
func tableGroups(w io.Writer, e Explanation) {
	for _, g := range e.Groups {
		fmt.Fprintf(w, "\nGroup %s\n", g.Shard)
		explainedLines(w, slices.Concat([][2]string{{"state", state(g.ShardView)}}, claimLines(g.Claim, e.now), [][2]string{
			{"owner", orNone(g.Wanted)}, {"decides", strings.Join(g.Deciding, ", ")},
		}))
	}
	if len(e.Elsewhere) > 0 {
		fmt.Fprintf(w, "\nIn each range, for the objects of its namespaces: %s\n", status.Plain(strings.Join(e.Elsewhere, ", ")))
	}
	if len(e.Missing) > 0 {
		fmt.Fprintf(w, "\nNot in the plan, so that nobody runs them: %s\n", status.Plain(strings.Join(e.Missing, ", ")))
	}
}

func orNone(name string) string {
	if name == "" {
		return "none, as no live member serves the ring"
	}
	return name
}

// errNeither says how 'flotilla explain' is called.
var errNeither = errors.New("flotilla explain takes one NAMESPACE or one TYPE/NAME, or --controller NAME and nothing else")
