// Command steps runs the steps of the Makefile's test targets, and ends with a table of steps,
// results, times and CPU times.
//
//	steps check              before each commit
//	steps test               what a release must not break: the README's command, and CI's
//	steps test-all           everything there is
//	steps NAME... [-- ARGS]  these steps alone; ARGS go to the last command of each
//	steps help               the list of steps
//
// The steps are in [sets] and [more]; run.go runs them.
//
// # Guarantees
//
//   - A step's output goes to the screen and to _output/steps/NAME.log. Of `go test`, the screen
//     gets what it would print without -v, and the log everything.
//   - A failed step does not keep the others from running, except for those that need what it
//     should have built, which count as failed.
//   - The exit status is 0 only if no step failed.
//   - The table ends with what was skipped. With STRICT=1 in the environment a skip counts as
//     failed, unless its reason begins with "left out: ", which means that a flag enables it.
package main
