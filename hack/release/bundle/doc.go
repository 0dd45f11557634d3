// Package bundle makes the files of a release: archives of binaries, the chart, an image, a bill of
// materials, a krew manifest, and checksums.
//
// # Guarantees
//
//   - The same input gives the same bytes: names are sorted, owners are 0, times are the commit's,
//     and nothing of the machine is recorded.
//   - SHA256SUMS names every other file of the release.
//
// # Non-guarantees
//
//   - The image has the machine's bundle of public authorities (deploy/image/rootfs.sh), so images
//     are equal only if that is.
//   - Another Go release compiles and compresses differently.
package bundle
