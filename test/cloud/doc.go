// Package cloud runs cloud controller managers as processes, upstream's and the fleet's, beside a
// real control plane and the cloud of package sky, with nodes and their endpoints in between: what
// its tests and its benchmark have in common.
//
// Everything listens on 127.0.0.0/8.
package cloud
