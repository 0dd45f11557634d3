// Command steps runs what the Makefile's test targets consist of, and ends with a table of steps,
// results, times and processor times.
//
//	steps check              before each commit
//	steps test               what a release must not break: the README's command, and CI's
//	steps test-all           everything there is
//	steps NAME... [-- ARGS]  these steps alone; ARGS go to the last command of each
//	steps help               the list of steps
//
// The steps themselves are in [sets] and [more]; how they are run is in run.go.
//
// # Guarantees
//
//   - What a step prints goes to the screen and to _output/steps/NAME.log. Of `go test`, the screen
//     gets what it would print without -v, and the log everything.
//   - A failed step does not keep the others from running, except for those that need what it
//     should have built: they count as failed, too.
//   - The exit status is 0 only if no step failed.
//   - Whatever was skipped is in the table, last. With STRICT=1 in the environment it counts as
//     failed, unless its reason begins with "left out: ", which says that a flag asks for it.
package main
