package controllers

import (
	"context"
	"errors"
	"strings"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// Upstream's controllers report every item that fails to utilruntime.HandleError, which lets one a
// millisecond pass in the whole process. When a shard goes, the rest of its queues fails at once,
// and would delay all other shards as well.
func init() {
	// The first one logs, and counts stack frames to find its caller.
	for i, handle := range utilruntime.ErrorHandlers[1:] {
		utilruntime.ErrorHandlers[i+1] = unlessFenced(handle)
	}
}

// unlessFenced passes on errors that are not the fence's.
func unlessFenced(handle utilruntime.ErrorHandler) utilruntime.ErrorHandler {
	return func(ctx context.Context, err error, msg string, keysAndValues ...any) {
		if !isFenced(err) {
			handle(ctx, err, msg, keysAndValues...)
		}
	}
}

// isFenced reports whether an error is the fence's, or quotes one of these.
func isFenced(err error) bool {
	return errors.Is(err, fence.ErrRefused) || err != nil && strings.Contains(err.Error(), fence.ErrRefused.Error())
}
