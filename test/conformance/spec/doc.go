// Package spec identifies upstream's specs by their texts. It parses the listing that e2e.test
// prints, selects the candidates, reads and writes the lists of kept specs, and builds the
// expression by which ginkgo runs some of them.
//
// A spec's name is its full text, as `e2e.test --list-tests` prints it. When upstream rewords a
// spec, the old text stays in a list and does not run, which package verdict counts as a failure.
package spec
