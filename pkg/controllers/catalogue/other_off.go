//go:build !planted

package catalogue

// otherRows returns the rows of the version that this build poses as: its own.
func otherRows(rows []Row) []Row { return rows }

// otherVersion does so for the version.
func otherVersion(version string) string { return version }
