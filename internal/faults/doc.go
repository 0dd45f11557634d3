// Package faults holds planted bugs: a checker that has never failed is no evidence. The code uses
// each in one line. Without the tag "planted" every one is a constant that is false, and the
// compiler removes what depends on it. With the tag each is a variable, and the environment
// variable FLOTILLA_PLANT names the one that is on; an unknown name ends the process.
// docs/design/planted.md says which checker finds which bug.
//
// Bare, under the tag "bare", is not a bug: test/bench/overhead compares a member with one that is
// built with it.
package faults
