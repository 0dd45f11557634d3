// Package data fills a cluster with many objects that need no work, as in a cluster at rest:
// ReplicaSets that have their pods, Services, ConfigMaps and Secrets. It does so once; control
// planes then start from a copy of etcd's data.
package data
