package apiresponse

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Newer reports whether version a of an object is newer than b; any version is newer than none. A
// version that does not follow the API's rules counts as newer if it differs: the latest answer
// wins then.
func Newer(a, b string) bool {
	if b == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order > 0
}
