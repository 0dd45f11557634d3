// Package flags defines the flags that every member of a fleet has, whatever its controllers are:
// their texts, defaults and bounds, for cmd/flotilla and for cloud controller managers (pkg/cloud).
package flags
