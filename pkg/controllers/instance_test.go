package controllers

import (
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// TestConstructorThatEndsTheProcess ends the process as upstream's namespace controller does when discovery fails while
// it is built.
func TestConstructorThatEndsTheProcess(t *testing.T) {
	build := func() (err error) {
		defer recovered(&err)
		klog.FlushAndExit(time.Second, 1)
		return nil
	}
	if err := build(); err == nil || !strings.Contains(err.Error(), "status 1") {
		t.Errorf("building returned %v, want an error that names the status", err)
	}
}
