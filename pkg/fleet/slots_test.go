package fleet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

func TestSlots(t *testing.T) {
	s := newSlots(2)
	var woken []string
	ask := func(name string) *slot { return s.ask(func() { woken = append(woken, name) }) }
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(woken, want) {
			t.Fatalf("woken: %q, want %q", woken, want)
		}
	}
	a, b := ask("a"), ask("b")
	c, d, e := ask("c"), ask("d"), ask("e")
	if !isClosed(a.granted) || !isClosed(b.granted) || isClosed(c.granted) {
		t.Fatal("two of three must have been granted at once")
	}
	expect() // what is granted at once wakes nobody
	d.giveBack()
	expect() // d has left the queue, and had nothing to give
	a.giveBack()
	expect("c")
	if !isClosed(c.granted) || isClosed(d.granted) || isClosed(e.granted) {
		t.Fatal("c must have been granted, and nothing else")
	}
	b.giveBack()
	expect("c", "e")
	c.giveBack()
	e.giveBack()
	expect("c", "e")
	if f, g, h := ask("f"), ask("g"), ask("h"); !isClosed(f.granted) || !isClosed(g.granted) || isClosed(h.granted) {
		t.Fatal("there must be two slots again")
	}
}

func TestWaitForSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		first, err := s.wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		type answer struct {
			slot *slot
			err  error
		}
		given, patient := make(chan answer, 1), make(chan answer, 1)
		go func() { s, err := s.wait(ctx); given <- answer{s, err} }()
		synctest.Wait()
		go func() { s, err := s.wait(t.Context()); patient <- answer{s, err} }()
		synctest.Wait()
		cancel(gone)
		if a := <-given; a.slot != nil || !errors.Is(a.err, gone) {
			t.Fatalf("got %v, %v after its context had ended, want %v", a.slot, a.err, gone)
		}
		synctest.Wait()
		if len(patient) != 0 {
			t.Fatal("there is a second slot")
		}
		first.giveBack()
		if a := <-patient; a.slot == nil || a.err != nil {
			t.Fatalf("got %v, %v, want the slot that was given back", a.slot, a.err)
		}
	})
}
