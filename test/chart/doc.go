// Package chart holds deploy/chart against what its values.yaml says.
//
//   - TestReadme: the chart's README is generated from the comments in values.yaml.
//   - TestEveryValueHasAnEffect: every value changes what is rendered, and a value without a row in
//     the table fails.
//   - TestRefused: every value refuses a wrong one, naming the field.
//   - TestShadowIsAlone, TestShadowLeavesMembers: a release is a shadow or members, never one after
//     the other.
//   - TestNotes, TestNames, TestSkew, TestMonitoring: notes, names per release, Kubernetes
//     versions, and what watches a hosted fleet.
//
// test/deploy holds the rendered default against the overlays, and runs it. All but TestReadme need
// bin/helm, which `hack/build-tools.sh helm` builds.
package chart
