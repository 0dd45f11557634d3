package manager

import (
	"net/http"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// mappers has a RESTMapper for the Managers of a controller, one for each API server. All shards
// discover the same kinds, and a mapper goes on discovering new ones. It discovers within the
// controller's limit: each request for a missing kind looks for it again. So every controller has
// its own mapper, even if one function builds several controllers, or controllers of two fleets.
type mappers struct {
	mu  sync.Mutex
	all map[mapperKey]meta.RESTMapper
}

// mapperKey has the limit of a controller; nil for none.
type mapperKey struct {
	host    string
	limiter flowcontrol.RateLimiter
}

// of returns a MapperProvider for a shard.
func (m *mappers) of(s *flotilla.Shard) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		// The Manager's own configuration ends with the shard.
		config, limited := s.Reading(), s.Config()
		config.QPS, config.Burst, config.RateLimiter = limited.QPS, limited.Burst, limited.RateLimiter
		m.mu.Lock()
		defer m.mu.Unlock()
		key := mapperKey{config.Host, config.RateLimiter}
		// A limiter of the program's own may be of any type.
		comparable := reflect.ValueOf(&key.limiter).Elem().Comparable()
		if comparable {
			if made, is := m.all[key]; is {
				return made, nil
			}
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		made, err := apiutil.NewDynamicRESTMapper(config, client)
		if err != nil {
			return nil, err
		}
		if m.all == nil {
			m.all = map[mapperKey]meta.RESTMapper{}
		}
		if comparable {
			m.all[key] = made
		}
		return made, nil
	}
}
