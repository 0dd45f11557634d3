// Package faults holds the bugs that are planted to see them found: a checker that has never failed
// is no evidence. Each is used in one line. Without the tag "planted" every one is a constant that
// is false, and the compiler takes out what hangs on it. With the tag each is a variable, and the
// environment variable FLOTILLA_PLANT names the one that is on; a name that is not known ends the
// process. docs/design/planted.md says who finds which.
//
// Bare, under the tag "bare", is no bug: test/bench/overhead compares a member with one that is
// built so.
package faults
