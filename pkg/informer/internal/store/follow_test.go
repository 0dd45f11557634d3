package store

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
)

// TestFollowRefuses checks that an informer follows neither a source that is behind it nor one that
// has ended or not synced.
func TestFollowRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(parent *Sink)
		version string
		want    bool
	}{
		"not synced":     {func(s *Sink) { _ = s.Bookmark("9") }, "5", false},
		"behind":         {func(s *Sink) { _ = s.Replace(nil, "4") }, "5", false},
		"of no version":  {func(s *Sink) { _ = s.Replace(nil, "x") }, "5", false},
		"deserted":       {func(s *Sink) { _ = s.Replace(nil, "6"); s.Informer.Desert() }, "5", false},
		"ended":          {func(s *Sink) { _ = s.Replace(nil, "6"); s.Informer.stop() }, "5", false},
		"as far":         {func(s *Sink) { _ = s.Replace(nil, "5") }, "5", true},
		"further, by 1":  {func(s *Sink) { _ = s.Replace(nil, "10") }, "9", true},
		"first of all":   {func(s *Sink) { _ = s.Replace(nil, "1") }, "", true},
		"further, later": {func(s *Sink) { _ = s.Replace(nil, "1"); _ = s.Bookmark("7") }, "7", true},
	} {
		t.Run(name, func(t *testing.T) {
			parent, child := New(Config{Example: &v1.ConfigMap{}}), New(Config{Example: &v1.ConfigMap{}})
			_ = (&Sink{Informer: child}).Bookmark(c.version)
			c.prepare(&Sink{Informer: parent})
			into := &Sink{Informer: child, Stored: true}
			if got := parent.Follow(into); got != c.want {
				t.Errorf("followed: %t, want %t", got, c.want)
			}
			if child.HasSynced() || parent.Confirm(into) != c.want || child.HasSynced() != c.want {
				t.Error("only what follows syncs, and only when it is confirmed")
			}
		})
	}
}

// TestLeftBeforeItWasConfirmed checks that a follower whose source has ended does not sync when the
// source turns out to have been fresh.
func TestLeftBeforeItWasConfirmed(t *testing.T) {
	parent, child := New(Config{Example: &v1.ConfigMap{}}), New(Config{Example: &v1.ConfigMap{}})
	_ = (&Sink{Informer: parent}).Replace(nil, "1")
	into := &Sink{Informer: child, Stored: true}
	if !parent.Follow(into) {
		t.Fatal("refused")
	}
	parent.Desert()
	if parent.Confirm(into) || child.HasSynced() {
		t.Error("it has synced")
	}
	if err := (&Sink{Informer: parent}).Replace([]any{informertest.ConfigMap("a", "b")}, "2"); err != nil || len(child.GetStore().List()) != 0 {
		t.Errorf("it was told of a change, or %v", err)
	}
}

// TestWhatResumes checks that an informer which has not synced, or has lost its place, lists.
func TestWhatResumes(t *testing.T) {
	into := &Sink{Informer: New(Config{Example: &v1.ConfigMap{}})}
	check := func(when, want string) {
		t.Helper()
		if got := into.Place(); got != want {
			t.Errorf("%s it goes on from version %q, want %q", when, got, want)
		}
	}
	check("at first", "")
	if err := into.replace(nil, "4"); err != nil {
		t.Fatal(err)
	}
	check("filled with what need not be of the present", "")
	into.synced()
	check("synced", "4")
	into.SetLost(true)
	check("having lost its place", "")
	into.SetLost(false)
	if err := into.Replace(nil, "0"); err != nil {
		t.Fatal(err)
	}
	check("at a version that stands for any", "")
}
