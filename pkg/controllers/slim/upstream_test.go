package slim

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// guard is what must be known of upstream's source to check slim copies of a kind against it.
type guard struct {
	// kind is the type that slim copies are made of. others are kinds whose parts do not count as
	// its parts.
	kind   reflect.Type
	others []reflect.Type
	// roots are the packages of the controllers that get slim copies.
	roots []string
	// plugins are packages that get volumes of Pods to attach. Of these they read the sources of
	// the kinds that they attach.
	plugins []string
	// safe are functions that may get an object, a part of one, or a container of objects, although
	// the walk does not go through their source. Each name has a reason.
	safe map[string]string
	// kept are the fields, by their type, of a slim copy. reads are some that upstream is known to
	// read.
	kept  map[string]bool
	reads []string
}

func ofPods() guard {
	return guard{
		kind: reflect.TypeFor[v1.Pod](),
		others: []reflect.Type{reflect.TypeFor[v1.Node](), reflect.TypeFor[v1.PersistentVolume](), reflect.TypeFor[v1.PersistentVolumeClaim](),
			reflect.TypeFor[v1.Event](), reflect.TypeFor[v1.Service](), reflect.TypeFor[v1.Secret]()},
		roots: podRoots, plugins: plugins, safe: safeWithPods, kept: keptFields(Pod(full())),
		reads: []string{
			"ObjectMeta.Name", "PodSpec.NodeName", "PodSpec.Volumes", "PodStatus.Conditions", "PodStatus.ContainerStatuses", "ContainerStatus.State",
			"PodStatus.ResourceClaimStatuses", "PodSpec.SchedulingGroup", "VolumeSource.PersistentVolumeClaim", "ObjectMeta.DeletionTimestamp",
		},
	}
}

// ofNodes is for the controllers of ranges. None of them may write a Node: a function that sends
// one is neither in the packages that are checked nor in safe.
func ofNodes() guard {
	return guard{
		kind: reflect.TypeFor[v1.Node](),
		others: []reflect.Type{reflect.TypeFor[v1.Pod](), reflect.TypeFor[v1.PersistentVolume](), reflect.TypeFor[v1.PersistentVolumeClaim](),
			reflect.TypeFor[v1.Event](), reflect.TypeFor[v1.Service](), reflect.TypeFor[v1.Secret]()},
		roots: nodeRoots, kept: keptFields(Node(fullNode())),
		safe:  map[string]string{"(github.com/go-logr/logr.Logger).Info": "tainteviction/taint_eviction.go:555: logs taints"},
		reads: []string{"ObjectMeta.Name", "ObjectMeta.Labels", "NodeSpec.Taints", "NodeStatus.Conditions", "NodeStatus.Allocatable", "NodeCondition.Status"},
	}
}

// nodeRoots are the packages of the controllers that get slim copies of Nodes.
var nodeRoots = []string{
	"k8s.io/endpointslice",
	"k8s.io/endpointslice/topologycache",
	"k8s.io/kubernetes/pkg/controller/daemon",
	"k8s.io/kubernetes/pkg/controller/daemon/util",
	"k8s.io/kubernetes/pkg/controller/endpointslice",
	"k8s.io/kubernetes/pkg/controller/tainteviction",
}

// podRoots are the packages of the controllers that get slim copies of Pods.
var podRoots = []string{
	"k8s.io/kubernetes/pkg/controller/devicetainteviction",
	"k8s.io/kubernetes/pkg/controller/nodelifecycle",
	"k8s.io/kubernetes/pkg/controller/podgc",
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach",
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach/cache",
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach/metrics",
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach/populator",
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach/reconciler",
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach/statusupdater",
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach/util",
	"k8s.io/kubernetes/pkg/controller/volume/common",
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume",
}

var plugins = []string{
	"k8s.io/csi-translation-lib",
	"k8s.io/csi-translation-lib/plugins",
	"k8s.io/kubernetes/pkg/volume/csi",
	"k8s.io/kubernetes/pkg/volume/csimigration",
	"k8s.io/kubernetes/pkg/volume/fc",
	"k8s.io/kubernetes/pkg/volume/flexvolume",
	"k8s.io/kubernetes/pkg/volume/iscsi",
}

var safeWithPods = map[string]string{
	"(k8s.io/client-go/tools/record.EventRecorder).Event":                                      "tools/reference/ref.go: refers by name, namespace, UID and resourceVersion",
	"(k8s.io/client-go/tools/record.EventRecorder).Eventf":                                     "the same",
	"(k8s.io/client-go/kubernetes/typed/core/v1.PodInterface).UpdateStatus":                    "Client puts it over the Pod that there is",
	"(k8s.io/kubernetes/pkg/volume/csimigration.PluginNameMapper).GetInTreePluginNameFromSpec": "is among the plugins",
	"encoding/json.Marshal":                              "pkg/util/pod/pod.go: both sides of a patch are made of the same status",
	"k8s.io/kubernetes/pkg/controller/tainteviction.New": "only with a gate off that is locked; see TestTaintEvictionIsSeparate",
}

// With the feature gate off, node-lifecycle would run taint eviction itself, on slim copies, which
// have no tolerations.
func TestTaintEvictionIsSeparate(t *testing.T) {
	gate, known := utilfeature.DefaultMutableFeatureGate.GetAll()[features.SeparateTaintEvictionController]
	if known && !(gate.Default && gate.LockToDefault) {
		t.Errorf("the feature gate is %+v, but must be locked to true", gate)
	}
}

// TestUpstreamReadsNoMore goes through the source of the controllers that get slim copies, and of
// the functions to which they pass objects or parts of them. Every field that they read must be in
// a slim copy.
func TestUpstreamReadsNoMore(t *testing.T) {
	for _, g := range []guard{ofPods(), ofNodes()} {
		t.Run(g.kind.Name(), g.check)
	}
}

func (g guard) check(t *testing.T) {
	w := newWalk(t, g)
	for _, path := range g.roots {
		p := w.load(path)
		for _, f := range p.files {
			w.walk(p, f)
		}
	}
	for len(w.queue) > 0 {
		next := w.queue[0]
		w.queue = w.queue[1:]
		p := w.load(next.pkg)
		if decl := p.find(next.name); decl != nil {
			w.walk(p, decl)
		} else {
			t.Errorf("%s gets a %s at %s, but its source was not found", next.name, g.kind.Name(), next.at)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(w.found)) {
		if !g.kept[field] {
			t.Errorf("upstream reads %s, which slim copies lack: %s", field, strings.Join(w.found[field], ", "))
		}
	}
	for _, field := range g.reads {
		if len(w.found[field]) == 0 {
			t.Errorf("no read of %s has been found: this test does not see what upstream reads", field)
		}
	}
	for name := range g.safe {
		if !w.used[name] {
			t.Errorf("nobody passes a %s to %s: remove it from safe", g.kind.Name(), name)
		}
	}
	for _, path := range g.plugins {
		p := w.load(path)
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				for _, field := range w.fields(p, n) {
					if strings.HasPrefix(field, "VolumeSource.") && !g.kept[field] {
						t.Errorf("%s reads %s of a volume: see whether its kind may be attached", w.at(n), field)
					}
				}
				return true
			})
		}
	}
}

// keptFields returns the fields, by their type, in the slim copy of an object in which everything
// is set.
func keptFields(slim any) map[string]bool {
	kept := map[string]bool{}
	note(reflect.ValueOf(slim).Elem(), kept)
	return kept
}

// fullNode returns a Node with a value in each field, and conditions.
func fullNode() *v1.Node {
	node := &v1.Node{}
	fill(reflect.ValueOf(node).Elem(), 0)
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeMemoryPressure}, {Type: v1.NodeReady}, {Type: v1.NodeDiskPressure}}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		kind := c.Type
		fill(reflect.ValueOf(c).Elem(), 0)
		c.Type = kind
	}
	return node
}

// full returns a Pod that is being deleted, with a volume of each kind, and a value in each other
// field.
func full() *v1.Pod {
	pod := &v1.Pod{}
	fill(reflect.ValueOf(pod).Elem(), 0)
	pod.Spec.Volumes = nil
	source := reflect.TypeFor[v1.VolumeSource]()
	for i := range source.NumField() {
		volume := v1.Volume{Name: source.Field(i).Name}
		fill(reflect.ValueOf(&volume.VolumeSource).Elem().Field(i), 0)
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled}, {Type: v1.DisruptionTarget}, {Type: v1.ContainersReady}, {Type: v1.PodReady}}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		kind := c.Type
		fill(reflect.ValueOf(c).Elem(), 0)
		c.Type = kind
	}
	return pod
}

// fill sets everything in v, once.
func fill(v reflect.Value, depth int) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			v.Set(reflect.ValueOf(metav1.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("set")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	}
}

// note adds the fields that are set in v.
func note(v reflect.Value, kept map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			note(v.Elem(), kept)
		}
	case reflect.Slice:
		for i := range v.Len() {
			note(v.Index(i), kept)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				kept[v.Type().Name()+"."+v.Type().Field(i).Name] = true
				note(v.Field(i), kept)
			}
		}
	}
}

// walk goes through source code.
type walk struct {
	guard
	t       *testing.T
	fset    *token.FileSet
	listed  map[string]listed
	loaded  map[string]*loaded
	imports types.Importer
	// parts are the types that are parts of objects of the kind only.
	parts map[string]bool
	// found are the fields that are read, with the places.
	found map[string][]string
	queue []passed
	seen  map[string]bool
	used  map[string]bool
}

// passed is a function to which an object is passed.
type passed struct{ pkg, name, at string }

// listed is a package as the go command lists it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

type loaded struct {
	files []*ast.File
	info  *types.Info
}

func (p *loaded) find(name string) *ast.FuncDecl {
	for _, f := range p.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if obj, ok := p.info.Defs[fn.Name].(*types.Func); ok && obj.FullName() == name {
					return fn
				}
			}
		}
	}
	return nil
}

func newWalk(t *testing.T, g guard) *walk {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{
		"list", "-trimpath", "-buildvcs=false", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}, slices.Concat(g.roots, g.plugins)...)...)
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Start(); err != nil {
		t.Fatal(err)
	}
	w := &walk{guard: g, t: t, fset: token.NewFileSet(), listed: map[string]listed{}, loaded: map[string]*loaded{}, parts: map[string]bool{},
		found: map[string][]string{}, seen: map[string]bool{}, used: map[string]bool{}}
	for decoder := json.NewDecoder(out); ; {
		var p listed
		if err := decoder.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		w.listed[p.ImportPath] = p
	}
	if err := list.Wait(); err != nil {
		t.Fatal(err)
	}
	w.imports = importer.ForCompiler(w.fset, "gc", func(path string) (io.ReadCloser, error) {
		if w.listed[path].Export == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(w.listed[path].Export)
	})
	of := func(kinds ...reflect.Type) map[string]bool {
		found := map[string]bool{}
		for _, kind := range kinds {
			partsOf(kind, found)
		}
		return found
	}
	others := of(g.others...)
	for part := range of(g.kind) {
		if !others[part] {
			w.parts[part] = true
		}
	}
	return w
}

// partsOf adds the structs of the core group that a type consists of.
func partsOf(t reflect.Type, found map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		partsOf(t.Elem(), found)
	case reflect.Struct:
		if t.PkgPath() != "k8s.io/api/core/v1" || found[t.Name()] {
			return
		}
		found[t.Name()] = true
		for i := range t.NumField() {
			partsOf(t.Field(i).Type, found)
		}
	}
}

func (w *walk) load(path string) *loaded {
	w.t.Helper()
	if p := w.loaded[path]; p != nil {
		return p
	}
	p := &loaded{info: &types.Info{
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	w.loaded[path] = p
	for _, name := range w.listed[path].GoFiles {
		f, err := parser.ParseFile(w.fset, filepath.Join(w.listed[path].Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			w.t.Fatal(err)
		}
		p.files = append(p.files, f)
	}
	config := types.Config{Importer: w.imports}
	if _, err := config.Check(path, w.fset, p.files, p.info); err != nil || len(p.files) == 0 {
		w.t.Fatalf("%s has %d files, or %v", path, len(p.files), err)
	}
	return p
}

func (w *walk) at(n ast.Node) string {
	position := w.fset.Position(n.Pos())
	_, file, _ := strings.Cut(position.Filename, "/mod/")
	return fmt.Sprintf("%s:%d", file, position.Line)
}

// walk records what is read below a node, and where objects are passed.
func (w *walk) walk(p *loaded, node ast.Node) {
	ast.Inspect(node, func(n ast.Node) bool {
		for _, field := range w.fields(p, n) {
			w.found[field] = append(w.found[field], w.at(n))
		}
		if call, ok := n.(*ast.CallExpr); ok {
			w.call(p, call)
		}
		return true
	})
}

// fields returns the fields that a node selects, of an object or of a part of such objects only.
func (w *walk) fields(p *loaded, n ast.Node) (fields []string) {
	selector, ok := n.(*ast.SelectorExpr)
	if !ok || p.info.Selections[selector] == nil {
		return nil
	}
	selection := p.info.Selections[selector]
	if outer, ok := selector.X.(*ast.SelectorExpr); ok && outer.Sel.Name == "ObjectMeta" && w.isObject(p.info.TypeOf(outer.X)) {
		return []string{"ObjectMeta." + accessed(selector.Sel.Name)}
	}
	if !w.isPart(selection.Recv()) {
		return nil
	}
	t := selection.Recv()
	path := selection.Index()
	if selection.Kind() != types.FieldVal {
		if len(path) > 1 && selection.Obj().Name() != "DeepCopy" { // A method of the metadata.
			fields = append(fields, "ObjectMeta."+accessed(selection.Obj().Name()))
		}
		return fields
	}
	for _, i := range path {
		if pointer, ok := t.Underlying().(*types.Pointer); ok {
			t = pointer.Elem()
		}
		field := t.Underlying().(*types.Struct).Field(i)
		fields = append(fields, t.(*types.Named).Obj().Name()+"."+field.Name())
		t = field.Type()
	}
	return fields
}

// accessed returns the field that an accessor's method is for.
func accessed(method string) string {
	return strings.TrimPrefix(strings.TrimPrefix(method, "Get"), "Set")
}

// core returns the name of a type of the core group, below pointers and slices.
func core(t types.Type) string {
	for t != nil {
		switch of := t.(type) {
		case *types.Pointer:
			t = of.Elem()
		case *types.Slice:
			t = of.Elem()
		case *types.Map:
			t = of.Elem()
		case *types.Named:
			if of.Obj().Pkg() != nil && of.Obj().Pkg().Path() == "k8s.io/api/core/v1" {
				return of.Obj().Name()
			}
			return ""
		default:
			return ""
		}
	}
	return ""
}

func (w *walk) isObject(t types.Type) bool { return core(t) == w.kind.Name() }
func (w *walk) isPart(t types.Type) bool   { return w.parts[core(t)] }

// hasObjects reports whether values of a type give access to objects of the kind. All informers and
// stores count, unless the packages have some of other kinds.
func (w *walk) hasObjects(t types.Type) bool {
	named, ok := t.(*types.Named)
	kind := w.kind.Name()
	givers := []string{kind + "Informer", kind + "Lister", kind + "NamespaceLister"}
	if kind == "Pod" {
		givers = append(givers, "SharedIndexInformer", "Indexer", "Store")
	}
	return ok && slices.Contains(givers, named.Obj().Name())
}

// call queues the called function for the walk if it gets an object.
func (w *walk) call(p *loaded, call *ast.CallExpr) {
	given := slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
		t := p.info.TypeOf(arg)
		return t != nil && (w.isPart(t) || w.hasObjects(t) || w.isMetadata(p, arg))
	})
	if !given || p.info.Types[call.Fun].IsType() {
		return
	}
	callee := ast.Unparen(call.Fun)
	if index, ok := callee.(*ast.IndexExpr); ok {
		callee = index.X
	}
	var id *ast.Ident
	switch f := callee.(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return // A function literal: the walk goes through it in place.
	}
	function, ok := p.info.Uses[id].(*types.Func)
	if !ok {
		return // A builtin or a variable.
	}
	f := function.Origin()
	name, path := f.FullName(), ""
	if f.Pkg() != nil {
		path = f.Pkg().Path()
	}
	switch {
	case slices.Contains(w.roots, path):
	case w.safe[name] != "":
		w.used[name] = true
	case w.seen[name]:
	case types.IsInterface(recv(f)) || !strings.HasPrefix(path, "k8s.io/") || strings.Contains(path, "/kubernetes/typed/"):
		w.t.Errorf("%s: %s gets a %s, or a part of one: see what it reads, and name it in safe", w.at(call), name, w.kind.Name())
		w.seen[name] = true
	default:
		w.seen[name] = true
		w.queue = append(w.queue, passed{path, name, w.at(call)})
	}
}

// isMetadata reports whether an argument is the metadata of an object.
func (w *walk) isMetadata(p *loaded, arg ast.Expr) bool {
	if address, ok := arg.(*ast.UnaryExpr); ok {
		arg = address.X
	}
	selector, ok := arg.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "ObjectMeta" && w.isObject(p.info.TypeOf(selector.X))
}

func recv(f *types.Func) types.Type {
	if r := f.Signature().Recv(); r != nil {
		return r.Type()
	}
	return types.Typ[types.Int]
}
