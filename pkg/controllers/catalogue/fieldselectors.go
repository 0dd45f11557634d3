package catalogue

import (
	v1 "k8s.io/api/core/v1"
	selectors "k8s.io/apimachinery/pkg/fields"
	"k8s.io/kubernetes/pkg/controller/bootstrap"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
)

var (
	configMaps = v1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = v1.SchemeGroupVersion.WithResource("secrets")
)

// accountTokens are the Secrets with the token of a service account. Secrets never change their
// type.
func accountTokens(why string) FieldSelector {
	return FieldSelector{Resource: secrets, Why: why,
		Selector: selectors.OneTermEqualSelector("type", string(v1.SecretTypeServiceAccountToken)).String()}
}

// bootstrapTokens are the Secrets with a token for a node that joins.
func bootstrapTokens(namespace, why string) FieldSelector {
	return FieldSelector{Resource: secrets, Why: why, Selector: selectors.AndSelectors(
		selectors.OneTermEqualSelector("metadata.namespace", namespace),
		selectors.OneTermEqualSelector("type", string(v1.SecretTypeBootstrapToken))).String()}
}

// clusterInfo is the one ConfigMap that is signed.
func clusterInfo(why string) FieldSelector {
	options := bootstrap.DefaultSignerOptions()
	return FieldSelector{Resource: configMaps, Why: why, Selector: selectors.AndSelectors(
		selectors.OneTermEqualSelector("metadata.namespace", options.ConfigMapNamespace),
		selectors.OneTermEqualSelector("metadata.name", options.ConfigMapName)).String()}
}

// rootCAs are the ConfigMaps that are published to each namespace.
func rootCAs(why string) FieldSelector {
	return FieldSelector{Resource: configMaps, Why: why,
		Selector: selectors.OneTermEqualSelector("metadata.name", rootcacertpublisher.RootCACertConfigMapName).String()}
}
