// Package plant holds the bugs that are planted to see them found: a checker that has never failed is no evidence. Every
// one is false, and the compiler takes out what hangs on it, unless the binary is built with the tag plant_<name>. Each is
// used in one line. docs/design/planted.md says who finds which.
//
// Bare, under the tag bare, is no bug: test/bench/overhead compares a member with one that is built so.
package plant
