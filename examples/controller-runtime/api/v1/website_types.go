// Package v1 defines the kind Website.
// +kubebuilder:object:generate=true
// +groupName=web.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of this package's kinds.
	GroupVersion = schema.GroupVersion{Group: "web.example.com", Version: "v1"}
	// AddToScheme adds this package's kinds to a scheme.
	AddToScheme = builder.AddToScheme

	builder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(GroupVersion, &Website{}, &WebsiteList{})
		metav1.AddToGroupVersion(scheme, GroupVersion)
		return nil
	})
)

// WebsiteSpec is the desired state of a Website.
type WebsiteSpec struct {
	// Text is the text that the page shows.
	Text string `json:"text,omitempty"`
}

// WebsiteStatus is the observed state of a Website.
type WebsiteStatus struct {
	// ObservedGeneration is the generation of the spec that was served last.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Website is one page of HTML.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WebsiteSpec   `json:"spec,omitempty"`
	Status WebsiteStatus `json:"status,omitempty"`
}

// WebsiteList is a list of Websites.
// +kubebuilder:object:root=true
type WebsiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Website `json:"items"`
}
