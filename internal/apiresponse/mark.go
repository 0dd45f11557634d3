package apiresponse

import "k8s.io/apimachinery/pkg/types"

// Mark is what a cache of a resource must have seen; an informer.Mark has the same fields.
type Mark struct {
	// Version is the version that it must have reached; empty for any.
	Version string `json:"version,omitempty"`
	// Gone are objects that it must not hold any more.
	Gone []types.UID `json:"gone,omitempty"`
	// Deleted are objects that it may hold only while they are being deleted.
	Deleted []types.UID `json:"deleted,omitempty"`
}
