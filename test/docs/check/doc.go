// Package check compares the pages of the handbook with the code, without a cluster. It requires
// that a test runs each command, or that the page says that none does; that links and anchors lead
// somewhere; that commands, flags, metrics and tests exist; and that the examples are as their
// pages show them. docs/flags.md must be what the command's flags generate ([TestFlagsPage]
// -rewrite writes it).
//
// Each rule is also tried on planted text, because a rule that has never failed is no evidence.
// test/docs/run checks what takes a cluster.
package check
