module example.com/pages

go 1.26.0

require (
	github.com/flotilla-kube/flotilla v0.0.0
	github.com/prometheus/client_golang v1.24.0
	k8s.io/api v0.37.1
	k8s.io/apimachinery v0.37.1
	k8s.io/client-go v0.37.1
	k8s.io/klog/v2 v2.140.0
)

// In your own module this line is not needed.
replace github.com/flotilla-kube/flotilla => ../..
