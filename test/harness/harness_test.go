package harness

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAwait(t *testing.T) {
	broken := errors.New("broken")
	gone := errors.New("gone")
	for _, test := range []struct {
		name string
		// seen lists what the condition returns, call by call; the last value repeats.
		seen []error
		// cancelled ends the context after a second.
		cancelled bool
		want      string
		is        error
		took      time.Duration
	}{
		{name: "at once", seen: []error{nil}},
		{name: "the third time", seen: []error{broken, broken, nil}, took: 2 * interval},
		{name: "never", seen: []error{gone, broken}, want: "it: not within 1m0s; last seen: broken", is: broken, took: time.Minute},
		{name: "hopeless", seen: []error{broken, errors.Join(ErrGiveUp, gone), nil}, want: "it: giving up\ngone", is: ErrGiveUp, took: interval},
		{name: "cancelled", seen: []error{broken}, cancelled: true, want: "it: gone; last seen: broken", is: gone, took: time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.cancelled {
					time.AfterFunc(time.Second, func() { cancel(gone) })
				}
				asked := 0
				took, err := Await(ctx, time.Minute, "it", func(ctx context.Context) error {
					asked++
					if ctx.Err() != nil {
						return ctx.Err()
					}
					return test.seen[min(asked, len(test.seen))-1]
				})
				if test.want == "" && err != nil || test.want != "" && (err == nil || err.Error() != test.want) || !errors.Is(err, test.is) {
					t.Errorf("got %v, want %q", err, test.want)
				}
				if took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
			})
		})
	}
}

func TestAwaitEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		took, err := AwaitEvery(t.Context(), 20*time.Millisecond, time.Minute, "it", func(context.Context) error {
			if asked++; asked < 4 {
				return errors.New("not yet")
			}
			return nil
		})
		if err != nil || took != 60*time.Millisecond {
			t.Errorf("%v after %v, want 60ms", err, took)
		}
	})
}

// TestAwaitGivesEachLookItsOwnTime has a condition that blocks. Its context must end, and Await
// must return the condition's own error.
func TestAwaitGivesEachLookItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := Await(t.Context(), time.Second, "it", func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("hung")
		})
		if err == nil || !strings.Contains(err.Error(), "last seen: hung") || time.Since(began) != requestTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

const (
	lease = `{"kind":"Event","stage":"ResponseComplete","verb":"update","userAgent":"stock-1/v1 (x)","objectRef":{"resource":"leases","namespace":"kube-system","name":"a"},` +
		`"responseStatus":{"code":200},"responseObject":{"kind":"Lease","metadata":{"name":"a","resourceVersion":"7"}},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.000002Z"}`
	refusedWrite = `{"stage":"ResponseComplete","verb":"create","objectRef":{"resource":"pods"},"responseStatus":{"code":403},"responseObject":{"kind":"Status","metadata":{"resourceVersion":"8"}}}`
	dryRun       = `{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/pods?dryRun=All","objectRef":{"resource":"pods"},"responseStatus":{"code":201}}`
	read         = `{"stage":"ResponseComplete","verb":"get","objectRef":{"resource":"leases","namespace":"default"},"responseStatus":{"code":200}}`
	unanswered   = `{"stage":"Panic","verb":"patch","objectRef":{"resource":"pods"},"responseStatus":{"code":500}}`
)

func TestEvents(t *testing.T) {
	var told []string
	log := strings.Join([]string{lease, refusedWrite, dryRun, read, unanswered}, "\n") + "\n" + lease[:40]
	err := Events(strings.NewReader(log), func(e *Event) error {
		var is []string
		for name, holds := range map[string]bool{"succeeded": e.Succeeded(), "mutating": e.Mutating(), "lease": e.IsLease(), "versioned": e.Version() > 0} {
			if holds {
				is = append(is, name)
			}
		}
		slices.Sort(is)
		told = append(told, strings.Join(is, " "))
		return nil
	})
	want := []string{"lease mutating succeeded versioned", "mutating", "succeeded", "succeeded", "mutating"}
	if err != nil || !slices.Equal(told, want) {
		t.Errorf("%v: got %q, want %q", err, told, want)
	}
	if err := Events(strings.NewReader(lease+"\n{junk\n"), func(*Event) error { return nil }); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("junk is accepted with %v", err)
	}
}

// TestFollow reads a log while the test writes to it, half a line at a time.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(text string) {
		if _, err := file.WriteString(text); err != nil {
			t.Error(err)
		}
	}
	write(lease + "\n" + refusedWrite[:30])
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	var verbs []string
	err = Follow(ctx, path, func(e *Event) {
		switch verbs = append(verbs, e.Verb); len(verbs) {
		case 1:
			write(refusedWrite[30:] + "\n{junk\n" + read + "\n")
		case 3:
			cancel()
		}
	})
	if want := []string{"update", "create", "get"}; err != nil || !slices.Equal(verbs, want) {
		t.Errorf("%v: got %q, want %q", err, verbs, want)
	}
}

func TestHasLine(t *testing.T) {
	const text = "one two\nthree four\n"
	for _, test := range []struct {
		parts []string
		want  bool
	}{{[]string{"two", "one"}, true}, {[]string{"two", "three"}, false}, {[]string{"five"}, false}} {
		if got := HasLine(text, test.parts...); got != test.want {
			t.Errorf("HasLine(%q) = %v", test.parts, got)
		}
	}
}

func TestPanicked(t *testing.T) {
	for text, want := range map[string]bool{
		"I0101 all is well\n": false,
		"I0101 all is well\npanic: no\n\ngoroutine 1 [running]:\n": true,
		"E0101 runtime.go:1] Observed a panic: x\n":                true,
		"I0101 somebody says panic: in a line\n":                   false,
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Panicked(path); (err != nil) != want {
			t.Errorf("%q: %v, want an error: %v", text, err, want)
		}
	}
}
