//go:build !planted

package catalogue

// otherRows returns the rows as the version has them that this build is to seem to be: this one.
func otherRows(rows []Row) []Row { return rows }

// otherVersion is the same for the version.
func otherVersion(version string) string { return version }
