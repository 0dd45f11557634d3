package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// readings are the ways in which whole resources have been listed and watched: "whole", "metadata",
// or a field selector.
type readings struct {
	mu  sync.Mutex
	all map[string]map[string]bool
}

// over returns a transport that records readings.
func (r *readings) over(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		r.note(request)
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (r *readings) note(request *http.Request) {
	path := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	informer := strings.Contains(request.UserAgent(), "shared-informers") || strings.Contains(request.UserAgent(), "metadata-informers")
	if request.Method != http.MethodGet || !informer || len(path) != 3 && len(path) != 4 || len(path) == 3 && path[0] == "apis" {
		return
	}
	query := request.URL.Query()
	way := cmp.Or(query.Get("fieldSelector"), "whole")
	switch {
	case query.Get("fieldSelector") == "metadata.name=flotilla-probe": // asks whether the server filters by range
		return
	case query.Get("limit") != "": // checks whether a cache is current
		return
	case strings.Contains(request.Header.Get("Accept"), "PartialObjectMetadata"):
		way = "metadata"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.Join(path[1:], "/")
	if r.all[name] == nil {
		r.all[name] = map[string]bool{}
	}
	r.all[name][way] = true
}

func (r *readings) of(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.all[name]))
}

func (r *readings) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.all))
}

// startReading starts the chosen shards, with the controllers that the flag says, and returns what
// they read.
func startReading(t *testing.T, flags []string, chosen func(controllers.Spec) bool) (*readings, []running) {
	t.Helper()
	c, _ := newConfig(t, flags...)
	r := &readings{all: map[string]map[string]bool{}}
	c.Kubeconfig = rest.CopyConfig(c.Kubeconfig)
	c.Kubeconfig.Wrap(r.over)
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	var instances []running
	for _, spec := range specs(t, 2) {
		if chosen(spec) {
			instances = append(instances, start(t, process, spec))
		}
	}
	for _, i := range instances {
		waitFor(t, "caches to sync", i.Informers().HasSynced)
	}
	return r, instances
}

// TestGarbageIsReadByMetadata checks that the group reads as whole objects only what its own
// controllers cast.
func TestGarbageIsReadByMetadata(t *testing.T) {
	const migrations = "storagemigration.k8s.io/v1/storageversionmigrations"
	r, _ := startReading(t, []string{allOn}, func(s controllers.Spec) bool { return s.ID.Name == catalogue.GroupGarbage })
	waitFor(t, "all kinds to be read", func() bool {
		return len(r.names()) > 60 && len(r.of(migrations)) == 2 && !slices.ContainsFunc(
			[]string{"v1/pods", "v1/secrets", "apps/v1/replicasets", "coordination.k8s.io/v1/leases"},
			func(name string) bool { return len(r.of(name)) == 0 })
	})
	for _, name := range r.names() {
		want := []string{"metadata"}
		if name == migrations {
			want = []string{"metadata", "whole"} // The migrator's monitors always read one kind, this one.
		}
		if got := r.of(name); !slices.Equal(got, want) {
			t.Errorf("%s is read as %q, want %q", name, got, want)
		}
	}
}

// TestRangesReadNoMoreThanTheyNeed checks that ranges read only the parts of Secrets and ConfigMaps
// that controllers need, as metadata what is only counted, and as whole objects what is cast or
// reconciled. No kind is read both whole and as metadata.
func TestRangesReadNoMoreThanTheyNeed(t *testing.T) {
	r, _ := startReading(t, []string{allOn}, func(s controllers.Spec) bool { return s.ID.Ring == catalogue.NamespacesRing })
	waitFor(t, "quota to have asked for all kinds", func() bool { return len(r.of("coordination.k8s.io/v1/leases")) > 0 && len(r.of("v1/secrets")) == 3 })
	for name, want := range map[string][]string{
		"v1/secrets":                         {"metadata", "metadata.namespace=kube-system,type=bootstrap.kubernetes.io/token", "type=kubernetes.io/service-account-token"},
		"v1/configmaps":                      {"metadata", "metadata.name=kube-root-ca.crt"},
		"v1/pods":                            {"whole"},
		"v1/services":                        {"whole"},
		"v1/persistentvolumeclaims":          {"whole"},
		"resource.k8s.io/v1/resourceclaims":  {"whole"},
		"apps/v1/replicasets":                {"whole"},
		"discovery.k8s.io/v1/endpointslices": {"whole"},
		"v1/resourcequotas":                  {"whole"},
		"coordination.k8s.io/v1/leases":      {"metadata"},
		"rbac.authorization.k8s.io/v1/roles": {"metadata"},
		"networking.k8s.io/v1/ingresses":     {"metadata"},
		"v1/limitranges":                     {"metadata"},
	} {
		if got := r.of(name); !slices.Equal(got, want) {
			t.Errorf("%s is read as %q, want %q", name, got, want)
		}
	}
	for _, name := range r.names() {
		ways := r.of(name)
		t.Log(name, ways)
		if slices.Contains(ways, "whole") && len(ways) > 1 {
			t.Errorf("%s is read in several ways: %q", name, ways)
		}
	}
}

// TestQuotaAlone checks quota without another controller that would read whole objects for it. It
// measures by content and sees changes of content, and still reads everything else as metadata.
// Without a key no tokens are created, whatever --controllers says.
func TestQuotaAlone(t *testing.T) {
	r, _ := startReading(t, []string{"--controllers=resourcequota-controller", "--service-account-private-key-file="}, func(s controllers.Spec) bool { return s.ID.Ring == catalogue.NamespacesRing })
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	const space = "reads-quota"
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(space).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fillWithCounted(t, client, space)
	wantUsed(t, client, space, true, map[v1.ResourceName]string{"pods": "2", "services": "2", "services.nodeports": "1", "requests.cpu": "300m", "secrets": "2", "configmaps": "3"})
	service, err := client.CoreV1().Services(space).Get(t.Context(), "service-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service.Spec.Type = v1.ServiceTypeClusterIP
	if _, err := client.CoreV1().Services(space).Update(t.Context(), service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wantUsed(t, client, space, false, map[v1.ResourceName]string{"services": "2", "services.nodeports": "0"})
	for _, name := range r.names() {
		want := "metadata"
		switch name {
		case "v1/pods", "v1/services", "v1/persistentvolumeclaims", "resource.k8s.io/v1/resourceclaims", "v1/resourcequotas", "resource.k8s.io/v1/deviceclasses":
			want = "whole"
		}
		if got := r.of(name); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is read as %q, want %s", name, got, want)
		}
	}
}

// TestControllersDoWithWhatTheyRead runs a whole plan: tokens are created, root CAs published and
// repaired, quotas count what exists, garbage is collected, and no other Secret or ConfigMap is
// cached whole.
func TestControllersDoWithWhatTheyRead(t *testing.T) {
	_, instances := startReading(t, []string{allOn}, func(controllers.Spec) bool { return true })
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, space := range []string{"reads-a", "reads-b", "reads-c"} {
		if _, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { return checkAccounts(ctx, client, space) })
		eventually(t, func() error { return checkRootCA(ctx, client, space) })
		fillWithCounted(t, client, space)
		// In addition to these: kube-root-ca.crt, and the Secret with the token.
		wantUsed(t, client, space, true, map[v1.ResourceName]string{
			"pods": "2", "services": "2", "secrets": "3", "configmaps": "4", "services.nodeports": "1", "requests.cpu": "300m",
			"count/secrets": "3", "count/configmaps": "4", "count/leases.coordination.k8s.io": "0", "count/limitranges": "0", "persistentvolumeclaims": "0",
		})
		if err := client.CoreV1().Secrets(space).Delete(ctx, "opaque", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		collects(t, client, space)
		wantUsed(t, client, space, false, map[v1.ResourceName]string{"secrets": "1", "configmaps": "3", "count/secrets": "1", "pods": "2"})
	}
	for _, i := range instances {
		checkParts(t, i)
	}
}

// checkAccounts creates a Secret for a token, and returns an error until it has one.
func checkAccounts(ctx context.Context, client kubernetes.Interface, space string) error {
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{v1.ServiceAccountNameKey: "default"}}, Type: v1.SecretTypeServiceAccountToken}
	if _, err := client.CoreV1().Secrets(space).Create(ctx, secret, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err // there is no service account yet
	}
	got, err := client.CoreV1().Secrets(space).Get(ctx, "token", metav1.GetOptions{})
	if err == nil && len(got.Data[v1.ServiceAccountTokenKey]) == 0 {
		err = errors.New("the Secret has no token yet")
	}
	return err
}

// checkRootCA spoils what is published, once, and returns an error until it is repaired.
func checkRootCA(ctx context.Context, client kubernetes.Interface, space string) error {
	const spoiled, name = "spoiled", "kube-root-ca.crt"
	got, err := client.CoreV1().ConfigMaps(space).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got.Labels[spoiled] == "" {
		got.Labels, got.Data = map[string]string{spoiled: "yes"}, map[string]string{"ca.crt": "none"}
		if _, err := client.CoreV1().ConfigMaps(space).Update(ctx, got, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return errors.New("it was only just spoiled")
	}
	if !strings.Contains(got.Data["ca.crt"], "BEGIN CERTIFICATE") {
		return fmt.Errorf("it holds %q", got.Data["ca.crt"])
	}
	return nil
}

// fillWithCounted creates objects that a quota counts, some by their content.
func fillWithCounted(t *testing.T, client kubernetes.Interface, space string) {
	t.Helper()
	ctx := t.Context()
	hard := v1.ResourceList{}
	for _, name := range []v1.ResourceName{"pods", "services", "secrets", "configmaps", "services.nodeports", "requests.cpu", "persistentvolumeclaims",
		"count/secrets", "count/configmaps", "count/leases.coordination.k8s.io", "count/limitranges"} {
		hard[name] = resource.MustParse("100")
	}
	var errs []error
	made := func(_ any, err error) { errs = append(errs, err) }
	for i, kind := range []v1.ServiceType{v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort} {
		made(client.CoreV1().Services(space).Create(ctx, &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("service-%d", i)},
			Spec: v1.ServiceSpec{Type: kind, Ports: []v1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}))
		cpu := v1.ResourceList{v1.ResourceCPU: resource.MustParse(fmt.Sprintf("%d00m", i+1))}
		made(client.CoreV1().Pods(space).Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Requests: cpu}}}}}, metav1.CreateOptions{}))
	}
	owner, err := client.CoreV1().ConfigMaps(space).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	made(nil, err)
	if err == nil {
		ref := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		made(client.CoreV1().Secrets(space).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: ref}}, metav1.CreateOptions{}))
	}
	made(client.CoreV1().Secrets(space).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "opaque"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{}))
	for i := range 2 {
		made(client.CoreV1().ConfigMaps(space).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%d", i)}}, metav1.CreateOptions{}))
	}
	made(client.CoreV1().ResourceQuotas(space).Create(ctx, &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: v1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{}))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// wantUsed waits until a quota counts what is wanted. Upstream recounts everything only when the
// quota changes or something is deleted; the API server counts what is added. A new quota may have
// missed the latest additions, so wantUsed changes it.
func wantUsed(t *testing.T, client kubernetes.Interface, space string, change bool, want map[v1.ResourceName]string) {
	t.Helper()
	eventually(t, func() error {
		quota, err := client.CoreV1().ResourceQuotas(space).Get(t.Context(), "quota", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for name, amount := range want {
			if used, ok := quota.Status.Used[name]; !ok || used.Cmp(resource.MustParse(amount)) != 0 {
				err := fmt.Errorf("%s: used of %s is %s, want %s", space, name, used.String(), amount)
				if limit := quota.Spec.Hard["pods"]; change {
					limit.Add(resource.MustParse("1"))
					quota.Spec.Hard["pods"] = limit
					_, failed := client.CoreV1().ResourceQuotas(space).Update(t.Context(), quota, metav1.UpdateOptions{})
					err = errors.Join(err, failed)
				}
				return err
			}
		}
		return nil
	})
}

// collects deletes an owner in the foreground and returns when both it and its dependents are gone.
func collects(t *testing.T, client kubernetes.Interface, space string) {
	t.Helper()
	foreground := metav1.DeletePropagationForeground
	if err := client.CoreV1().ConfigMaps(space).Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, ofOwner := client.CoreV1().ConfigMaps(space).Get(t.Context(), "owner", metav1.GetOptions{})
		_, ofDependent := client.CoreV1().Secrets(space).Get(t.Context(), "dependent", metav1.GetOptions{})
		if !apierrors.IsNotFound(ofOwner) || !apierrors.IsNotFound(ofDependent) {
			return fmt.Errorf("getting owner and dependent: %v, %v; want both gone", ofOwner, ofDependent)
		}
		return nil
	})
}

// checkParts inspects the caches of Secrets and ConfigMaps of an instance's controllers.
func checkParts(t *testing.T, i running) {
	t.Helper()
	for _, name := range i.Controllers() {
		row, _ := catalogue.Lookup(name)
		for _, part := range row.FieldSelectors {
			narrowed, err := i.Informers().Narrowed(map[schema.GroupVersionResource]string{part.Resource: part.Selector})
			if err != nil {
				t.Fatal(err)
			}
			objects, err := narrowed.ForResource(part.Resource)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range objects.Informer().GetStore().List() {
				switch o := obj.(type) {
				case *v1.Secret:
					if !strings.Contains(part.Selector, "type="+string(o.Type)) {
						t.Errorf("%s has the Secret %s/%s of type %s in memory", name, o.Namespace, o.Name, o.Type)
					}
				case *v1.ConfigMap:
					if !strings.Contains(part.Selector, "metadata.name="+o.Name) {
						t.Errorf("%s has the ConfigMap %s/%s in memory", name, o.Namespace, o.Name)
					}
				}
			}
		}
	}
}
