package clientset

import (
	"net/http"
	"reflect"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// restClient returns the client behind the client of a group.
func restClient(client any) rest.Interface {
	return client.(interface{ RESTClient() rest.Interface }).RESTClient()
}

// TestSameAsClientGo compares each group with that of client-go's clientset.
func TestSameAsClientGo(t *testing.T) {
	limiter := flowcontrol.NewFakeAlwaysRateLimiter()
	config := &rest.Config{Host: "https://127.0.0.1:1", UserAgent: "someone", RateLimiter: limiter}
	theirs, err := kubernetes.NewForConfigAndClient(config, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := New(config, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	interfaces := reflect.TypeFor[kubernetes.Interface]()
	if interfaces.NumMethod() < 50 {
		t.Fatalf("%d methods", interfaces.NumMethod())
	}
	for n := range interfaces.NumMethod() {
		name := interfaces.Method(n).Name
		call := func(clientset any) any {
			return reflect.ValueOf(clientset).MethodByName(name).Call(nil)[0].Interface()
		}
		got, want := call(ours), call(theirs)
		if reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s is a %T, want %T", name, got, want)
			continue
		}
		if again := call(ours); again != got {
			t.Errorf("%s is another client the second time", name)
		}
		a, b := restClient(got).(*rest.RESTClient), restClient(want).(*rest.RESTClient)
		if a.APIVersion() != b.APIVersion() || a.Get().URL().String() != b.Get().URL().String() || a.Client != b.Client {
			t.Errorf("%s asks %s of %s, want %s of %s", name, a.APIVersion(), a.Get().URL(), b.APIVersion(), b.Get().URL())
		}
		if name != "Discovery" && a.GetRateLimiter() != b.GetRateLimiter() {
			t.Errorf("%s has another rate limit", name)
		}
	}
}

// TestOneRateLimit checks that groups share a limit where the configuration has only figures.
func TestOneRateLimit(t *testing.T) {
	c, err := New(&rest.Config{Host: "https://127.0.0.1:1", QPS: 5, Burst: 10}, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	core, apps := c.CoreV1().RESTClient().GetRateLimiter(), c.AppsV1().RESTClient().GetRateLimiter()
	if core == nil || core != apps || core.QPS() != 5 {
		t.Errorf("the limits are %v and %v, want one of 5 a second", core, apps)
	}
}

// TestBadConfig checks that New fails as client-go does.
func TestBadConfig(t *testing.T) {
	for name, config := range map[string]*rest.Config{
		"host":  {Host: "https://%zz"},
		"burst": {Host: "https://127.0.0.1:1", QPS: 5},
	} {
		_, want := kubernetes.NewForConfigAndClient(config, http.DefaultClient)
		if _, err := New(config, http.DefaultClient); err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("%s: the error is %v, want %v", name, err, want)
		}
	}
}

// TestOnlyWhatIsUsed checks that nothing is made before it is asked for, whoever asks.
func TestOnlyWhatIsUsed(t *testing.T) {
	c, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { c.CoreV1(); c.AppsV1() })
	}
	all.Wait()
	if len(c.groups) != 2 {
		t.Errorf("%d groups are made, want CoreV1 and AppsV1: %v", len(c.groups), c.groups)
	}
}

// BenchmarkNew shows what a clientset of two groups costs beside client-go's.
func BenchmarkNew(b *testing.B) {
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c, err := New(config, http.DefaultClient)
			if err != nil {
				b.Fatal(err)
			}
			c.CoreV1()
			c.AppsV1()
		}
	})
	b.Run("client-go", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := kubernetes.NewForConfigAndClient(config, http.DefaultClient); err != nil {
				b.Fatal(err)
			}
		}
	})
}
