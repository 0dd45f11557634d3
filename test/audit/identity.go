package audit

import (
	"slices"
	"sync"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// controllersBehind returns the controllers that use an identity: a service account may be shared by several. None are known
// for identities that are no controller's.
func controllersBehind(identity string) []string { return identities()[identity] }

var identities = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for _, row := range catalogue.All() {
		for _, client := range row.Clients {
			if !slices.Contains(all[client.Name], row.Name) {
				all[client.Name] = append(all[client.Name], row.Name)
			}
		}
	}
	return all
})

// judgeController holds the controller that sent a request against those that the Lease named.
func (c *checker) judgeController(w write, f fact) {
	behind := controllersBehind(w.identity)
	if !f.exact || len(behind) == 0 {
		return
	}
	c.report.ByController++
	if !slices.ContainsFunc(behind, func(name string) bool { return slices.Contains(f.extent.Controllers, name) }) {
		c.convict(w.event, WrongController, "%s: %s is none of the shard's controllers", w.by, w.identity)
	}
}
