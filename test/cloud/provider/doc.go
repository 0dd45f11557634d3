// Package provider is a cloud provider for package sky, and the commands of its cloud controller
// manager: upstream's and the fleet's. They differ in one line, as docs/cloud.md says.
//
// The provider finds a load balancer by a tag with the Service's UID, and looks for one before it
// creates one. As with many clouds, two owners at once create two. It repeats a request above a
// limit at the time that the cloud names.
package provider
