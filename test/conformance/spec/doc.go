// Package spec knows upstream's specs by their texts: the listing that e2e.test prints, which of
// them are candidates, the files that hold the kept ones, and the expression by which ginkgo is
// told to run some of them.
//
// A spec is named by its full text, as `e2e.test --list-tests` prints it. It changes when upstream
// rewords a spec: then the old text is in a list and did not run, which package verdict counts as a
// failure.
package spec
