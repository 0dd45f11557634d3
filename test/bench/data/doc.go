// Package data fills a cluster with many objects that want nothing: ReplicaSets that have their
// pods, Services, ConfigMaps and Secrets, as a cluster at rest has them. It is done once; control
// planes then start from a copy of what etcd has stored.
package data
