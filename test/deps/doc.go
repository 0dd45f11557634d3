// Package deps checks the project's source against rules that no compiler checks: which package may
// import which ([TestImports]), which may make a member, a claim or informers ([TestOneDoor]), what
// tests may wait for ([TestTestsWaitForNothing]), that exported symbols are documented
// ([TestExportedSymbolsAreDocumented]), and that those which adopters use have examples
// ([TestExportedNamesHaveExamples]).
//
// Every rule has its reason, and a failure prints it. To change a rule, change its row and its
// reason. The rules read the files and not the go command's view of them. So they also see files of
// other platforms, and `go test` knows when its cached result is out of date. Each rule is also
// tried on planted source: a rule that has never failed is no evidence.
package deps
