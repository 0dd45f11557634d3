package catalogue

import (
	"slices"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// Identities returns, for each identity of controllers, the controllers that use it: several may
// share a service account.
func Identities() map[string][]string {
	all := map[string][]string{}
	for _, row := range All() {
		for _, client := range row.Clients {
			if !slices.Contains(all[client.Name], row.Name) {
				all[client.Name] = append(all[client.Name], row.Name)
				if row.Name == names.GarbageCollectorController {
					all[client.Name] = append(all[client.Name], ClusterCollector)
				}
			}
		}
	}
	return all
}
