// Package provider is a cloud provider for package sky, and the commands of its cloud controller
// manager: upstream's, and the fleet's. They differ in one line, as docs/cloud.md says.
//
// Load balancers are found by a tag with the Service's UID, looked for before one is made: as with
// many clouds, two owners at once make two. Requests that are above a limit are tried again when
// the cloud says.
package provider
