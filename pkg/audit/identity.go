package audit

import "slices"

// judgeController compares the controller that sent a request with those that the Lease named.
func (c *checker) judgeController(w write, f fact) {
	behind := c.controllers[w.identity]
	if !f.exact || len(behind) == 0 {
		return
	}
	c.report.ByController++
	if !slices.ContainsFunc(behind, func(name string) bool { return slices.Contains(f.extent.Controllers, name) }) {
		c.convict(w.event, WrongController, "%s: %s is none of the shard's controllers", w.by, w.identity)
	}
}
