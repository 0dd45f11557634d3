// Package deps holds the project's source against rules that no compiler checks: which package may
// import which ([TestImports]), which may make a member, a claim or informers ([TestOneDoor]), what
// tests may wait for ([TestTestsWaitForNothing]), that exported symbols are documented
// ([TestExportedSymbolsAreDocumented]), and that those which adopters use have examples
// ([TestExportedNamesHaveExamples]).
//
// Every rule carries its reason, and whoever breaks the rule is told it. To change a rule, change
// its row and its reason. The rules read the files themselves rather than what the go command says
// of them, so they also see the files of other platforms, and `go test` knows when its cached
// answer is out of date. Each rule is tried on planted source as well: a rule that has never been
// seen to fail is no evidence.
package deps
