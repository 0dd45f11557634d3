package audit

import "slices"

// judgeController compares the controller that sent a request with those that the Lease named. If
// the identity of none of these is known, they are another program's, which may use the same names.
func (c *checker) judgeController(w write, f fact) {
	behind := c.controllers[w.identity]
	if !f.exact || len(behind) == 0 || !c.identified.HasAny(f.extent.Controllers...) {
		return
	}
	c.report.ByController++
	if !slices.ContainsFunc(behind, func(name string) bool { return slices.Contains(f.extent.Controllers, name) }) {
		c.convict(w.event, WrongController, "%s: %s is none of the shard's controllers", w.by, w.identity)
	}
}
