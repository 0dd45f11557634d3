// Package check holds the pages of the handbook against the code, without a cluster: commands are
// run by a test or say that they are not, links and anchors lead somewhere, commands, flags and
// metrics exist, and docs/flags.md is what the command's flags make of it ([TestFlagsPage] -rewrite
// writes it).
//
// Each rule is tried on planted text as well: one that has never been seen to fail is no evidence.
// What it takes a cluster to know, test/docs/run finds out.
package check
