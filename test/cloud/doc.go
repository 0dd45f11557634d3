// Package cloud has what its tests and its benchmark share. It runs cloud controller managers,
// upstream's and the fleet's, as processes beside a real control plane and the cloud of package
// sky, with nodes and endpoints.
//
// Everything listens on 127.0.0.0/8.
package cloud
