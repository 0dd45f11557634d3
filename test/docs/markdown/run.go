package markdown

// Part is a page, or one level-2 section of it.
type Part struct {
	Page string
	// Section is the section's anchor, or empty for the whole page.
	Section string
}

// Run returns what test/docs/run runs, in this order, all on one cluster: each part begins where
// the one before ended. It follows the life of a fleet: it is installed beside a stock leader,
// inspected, scaled, restarted, and removed.
func Run() []Part {
	return []Part{
		{Page: "docs/install.md", Section: "self-hosted"},
		{Page: "docs/quickstart.md"},
		{Page: "docs/scale.md"},
		{Page: "docs/tune.md"},
		{Page: "docs/upgrade.md"},
		{Page: "docs/troubleshoot.md"},
		{Page: "docs/security.md"},
		{Page: "docs/migration.md", Section: "the-way-back"},
		{Page: "docs/install.md", Section: "take-it-away"},
		{Page: "docs/install.md", Section: "helm"},
	}
}

// Has reports whether the block belongs to the part.
func (p Part) Has(b Block) bool {
	return b.Page == p.Page && (p.Section == "" || p.Section == b.Section)
}

// IsRun reports whether the block belongs to any part of Run.
func IsRun(b Block) bool {
	for _, part := range Run() {
		if part.Has(b) {
			return true
		}
	}
	return false
}
