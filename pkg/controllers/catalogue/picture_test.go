package catalogue

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// none says why a type that can keep state is not part of any picture.
type none string

// sharedTypes are upstream's types that may keep a picture, with the row whose Picture covers each,
// or the reason why it is none.
var sharedTypes = map[string]any{
	"cronjob.fakeJobControl":                           none("is for upstream's tests"),
	"devicetainteviction.Controller":                   names.DeviceTaintEvictionController,
	"devicetainteviction.uidCache":                     none("its own evictions"),
	"endpoint.staleEndpointsTracker":                   none("its own writes"),
	"garbagecollector.GraphBuilder":                    names.GarbageCollectorController,
	"garbagecollector.Monitor":                         none("an informer's store"),
	"garbagecollector.ReferenceCache":                  none("what the server answered"),
	"garbagecollector.concurrentUIDToNode":             names.GarbageCollectorController,
	"garbagecollector.monitor":                         none("an informer's store"),
	"garbagecollector.node":                            names.GarbageCollectorController,
	"job.Controller":                                   none("its own writes"),
	"job.backoffStore":                                 none("its own syncs"),
	"job.uidSet":                                       none("its own writes"),
	"job.uidTrackingExpectations":                      none("its own writes"),
	"k8s.io/endpointslice/topologycache.TopologyCache": names.EndpointSliceController,
	"k8s.io/endpointslice/util.EndpointSliceTracker":   none("its own writes"),
	"k8s.io/endpointslice/util.TriggerTimeTracker":     none("its own syncs"),
	"namespace/deletion.operationNotSupportedCache":    none("what the server answered"),
	"nodeipam/ipam/cidrset.CidrSet":                    names.NodeIpamController,
	"nodelifecycle.Controller":                         names.NodeLifecycleController,
	"nodelifecycle.nodeHealthMap":                      names.NodeLifecycleController,
	"nodelifecycle/scheduler.RateLimitedTimedQueue":    none("a queue of keys"),
	"nodelifecycle/scheduler.UniqueQueue":              none("a queue of keys"),
	"pkg/controller.BaseControllerRefManager":          none("one sync"),
	"pkg/controller.ControllerExpectations":            none("its own writes"),
	"pkg/controller.FakePodControl":                    none("is for upstream's tests"),
	"pkg/controller.UIDTrackingControllerExpectations": none("its own writes"),
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache.ExtendedResourceCache": names.ResourceQuotaController,
	"podautoscaler.HorizontalController":                 names.HorizontalPodAutoscalerController,
	"podautoscaler.biMultimapSelectorTracker":            names.HorizontalPodAutoscalerController,
	"podautoscaler.hpaSelectorStore":                     names.HorizontalPodAutoscalerController,
	"resourceclaim.Controller":                           names.ResourceClaimController,
	"resourceclaim.uidCache":                             names.ResourceClaimController,
	"resourcequota.Controller":                           none("the lock keeps workers from counting while monitors change"),
	"resourcequota.QuotaMonitor":                         none("the informers, and a queue of namespaces"),
	"statefulset.defaultStatefulSetControl":              none("what it has computed"),
	"storageversionmigrator.ResourceVersionController":   none("a REST mapper"),
	"tainteviction.Controller":                           names.TaintEvictionController,
	"tainteviction.TimedWorkerQueue":                     names.TaintEvictionController,
	"ttl.Controller":                                     names.TTLController,
	"util/consistency.RealConsistencyStore":              none("its own writes"),
	"util/consistency.ownerRecord":                       none("its own writes"),
	"util/selectors.BiMultimap":                          names.HorizontalPodAutoscalerController,
	"volume/attachdetach/cache.actualStateOfWorld":       names.PersistentVolumeAttachDetachController,
	"volume/attachdetach/cache.desiredStateOfWorld":      names.PersistentVolumeAttachDetachController,
	"volume/persistentvolume.PersistentVolumeController": names.PersistentVolumeBinderController,
	"volume/pvcprotection.pvcProcessingStore":            none("a queue of keys, by namespace"),
	"volume/selinuxwarning/cache.volumeCache":            names.SELinuxWarningController,
}

// Somebody must have looked at all state that controllers keep: with warm caches a controller may
// act before it is complete.
func TestPicturesAreKnown(t *testing.T) {
	found := map[string]bool{}
	kubernetes := moduleDir(t, "k8s.io/kubernetes")
	for name := range sharedIn(t, filepath.Join(kubernetes, "pkg/controller"), "pkg/controller") {
		found[name] = true
	}
	for name := range sharedIn(t, moduleDir(t, "k8s.io/endpointslice"), "k8s.io/endpointslice") {
		found["k8s.io/endpointslice/"+name] = true
	}
	for name := range sharedIn(t, filepath.Join(moduleDir(t, "k8s.io/dynamic-resource-allocation"), "deviceclass"), "deviceclass") {
		found["k8s.io/dynamic-resource-allocation/deviceclass/"+name] = true
	}
	for name := range sharedIn(t, filepath.Join(kubernetes, "pkg/quota"), "quota") {
		found["../quota/"+name] = true
	}
	covered := map[string]bool{}
	for name := range found {
		switch of := sharedTypes[name].(type) {
		case nil:
			t.Errorf("%s can keep something in memory, and nobody has looked what.\n"+
				"Find out who fills it and what is decided by it. If handlers or a queue do, and Run does not wait for them, "+
				"see what happens when it is incomplete, and say so in picture.go. Otherwise say here why it is none.", name)
		case string:
			covered[of] = true
			if row, ok := Lookup(of); !ok || row.Picture == (Picture{}) {
				t.Errorf("%s is of %s, which has no Picture", name, of)
			}
		}
	}
	for name := range sharedTypes {
		if !found[name] {
			t.Errorf("%s: upstream has no such type that can be shared", name)
		}
	}
	for name := range pictures() {
		if _, ok := Lookup(name); !ok || !covered[name] {
			t.Errorf("%s has a Picture, but no row, or no type that keeps it", name)
		}
	}
}

var source = regexp.MustCompile(`(\w+) \(([\w./-]+\.go):(\d+)\)`)

// Statements in a Picture name a line in upstream's source.
func TestPicturesNameTheirSources(t *testing.T) {
	kubernetes := moduleDir(t, "k8s.io/kubernetes")
	for controller, picture := range pictures() {
		for i, v := 0, reflect.ValueOf(picture); i < v.NumField(); i++ {
			field, text := v.Type().Field(i).Name, v.Field(i).String()
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %s must be plain sentences, but is %q", controller, field, text)
			}
			sources := source.FindAllStringSubmatch(text, -1)
			if field != "Missing" && len(sources) == 0 {
				t.Errorf("%s: %s names no source: %q", controller, field, text)
			}
			for _, s := range sources {
				file := filepath.Join(kubernetes, "pkg/controller", s[2])
				if rest, staging := strings.CutPrefix(s[2], "k8s.io/"); staging {
					module, below, _ := strings.Cut(rest, "/")
					file = filepath.Join(moduleDir(t, "k8s.io/"+module), below)
				}
				if err := hasName(file, s[3], s[1]); err != nil {
					t.Errorf("%s: %s: %v", controller, field, err)
				}
			}
		}
	}
}

// hasName returns an error unless that line of the file has the name.
func hasName(file, line, name string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(line)
	if err != nil {
		return err
	}
	lines := strings.Split(string(content), "\n")
	if n > len(lines) || !regexp.MustCompile(`\b`+name+`\b`).MatchString(lines[n-1]) {
		return fmt.Errorf("line %d of %s does not have %q", n, file, name)
	}
	return nil
}

// sharedIn returns the struct types below a directory that can keep state from one sync to the
// next: those with a lock, a store or a cache. It skips configuration, metrics and tests.
func sharedIn(t *testing.T, dir, top string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{"config", "metrics", "test", "testing", "testutil"}, entry.Name()) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, filepath.Dir(file))
		if err != nil {
			return err
		}
		if below == "." {
			below = top
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && shared(spec.Type) {
				found[filepath.ToSlash(below)+"."+spec.Name.Name] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// shared reports whether the type is a struct with a field that makes sense only in something that
// outlives a sync.
func shared(expr ast.Expr) bool {
	s, ok := expr.(*ast.StructType)
	return ok && slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		typ := f.Type
		if pointer, ok := typ.(*ast.StarExpr); ok {
			typ = pointer.X
		}
		selector, ok := typ.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := selector.X.(*ast.Ident)
		return ok && slices.Contains([]string{
			"sync.Mutex", "sync.RWMutex", "sync.Map", "sync.Once", "cache.Store", "cache.MutationCache", "lru.Cache",
		}, pkg.Name+"."+selector.Sel.Name)
	})
}

// moduleDir returns the directory of a module's source.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("finding the source of %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}
