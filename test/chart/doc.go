// Package chart compares deploy/chart with what its values.yaml says.
//
//   - TestReadme: the chart's README is generated from the comments in values.yaml.
//   - TestEveryValueHasAnEffect: every value changes what is rendered, and a value without a row in
//     the table fails.
//   - TestRefused: a wrong value is refused, naming the field.
//   - TestShadowIsAlone, TestShadowLeavesMembers: a release is a shadow or members, and never
//     changes from one to the other.
//   - TestNotes, TestNames, TestSkew, TestMonitoring: notes, names per release, Kubernetes
//     versions, and the monitoring of a hosted fleet.
//
// test/deploy compares the rendered default with the overlays, and runs it. All but TestReadme need
// bin/helm, which `hack/build-tools.sh helm` builds.
package chart
