package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/flotilla-kube/flotilla/pkg/cloud"
	"github.com/flotilla-kube/flotilla/test/cloud/sky"
)

// Name is the provider's name, for --cloud-provider and in provider IDs.
const Name = "sky"

// Config is the content of --cloud-config, as JSON.
type Config struct {
	// URL is the API's address. Token names the client.
	URL   string `json:"url"`
	Token string `json:"token"`
	// Fenced puts cloud.Transport into the client.
	Fenced bool `json:"fenced"`
	// Careless lets requests outlive the context of their call.
	Careless bool `json:"careless"`
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, func(file io.Reader) (cloudprovider.Interface, error) {
		var c Config
		if err := json.NewDecoder(file).Decode(&c); err != nil {
			return nil, fmt.Errorf("--cloud-config: %w", err)
		}
		return New(c), nil
	})
}

// New returns the provider's cloud.
func New(c Config) cloudprovider.Interface {
	var transport http.RoundTripper = http.DefaultTransport.(*http.Transport).Clone()
	if c.Fenced {
		transport = cloud.Transport(transport)
	}
	return &provider{
		&client{
			url: c.URL, token: c.Token, careless: c.Careless,
			http: &http.Client{Transport: transport},
		},
	}
}

type provider struct{ *client }

func (*provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (p *provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return balancers{p.client}, true
}
func (*provider) Instances() (cloudprovider.Instances, bool) { return nil, false }
func (p *provider) InstancesV2() (cloudprovider.InstancesV2, bool) {
	return instances{p.client}, true
}
func (p *provider) Zones() (cloudprovider.Zones, bool)     { return zones{p.client}, true }
func (*provider) Clusters() (cloudprovider.Clusters, bool) { return nil, false }
func (p *provider) Routes() (cloudprovider.Routes, bool)   { return routes{p.client}, true }
func (*provider) ProviderName() string                     { return Name }
func (*provider) HasClusterID() bool                       { return true }

// balancers implements cloudprovider.LoadBalancer.
type balancers struct{ *client }

func (b balancers) find(ctx context.Context, service *v1.Service) ([]sky.LoadBalancer, error) {
	uid := string(service.UID)
	return ask[[]sky.LoadBalancer](
		ctx, b.client, http.MethodGet, "/v1/loadbalancers?uid="+url.QueryEscape(uid), uid, nil,
	)
}

func status(is sky.LoadBalancer) *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: is.Address}}}
}

func (b balancers) GetLoadBalancer(
	ctx context.Context, _ string, service *v1.Service,
) (*v1.LoadBalancerStatus, bool, error) {
	found, err := b.find(ctx, service)
	if err != nil || len(found) == 0 {
		return nil, false, err
	}
	return status(found[0]), true, nil
}

func (balancers) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (b balancers) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	to, err := backends(nodes)
	if err != nil {
		return nil, err
	}
	found, err := b.find(ctx, service)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		return status(found[0]), b.change(ctx, service, found[0], to)
	}
	want := sky.LoadBalancer{
		UID: string(service.UID), Service: service.Namespace + "/" + service.Name,
		Backends: to,
	}
	for _, p := range service.Spec.Ports {
		want.Ports = append(want.Ports, sky.Port{Port: p.Port, NodePort: p.NodePort})
	}
	made, err := ask[sky.LoadBalancer](
		ctx, b.client, http.MethodPost, "/v1/loadbalancers", string(service.UID), want,
	)
	if err != nil {
		return nil, err
	}
	return status(made), nil
}

// change sets the backends if they differ.
func (b balancers) change(
	ctx context.Context, service *v1.Service, is sky.LoadBalancer, to []string,
) error {
	if slices.Equal(is.Backends, to) {
		return nil
	}
	is.Backends = to
	_, err := ask[sky.LoadBalancer](
		ctx, b.client, http.MethodPut, "/v1/loadbalancers/"+is.ID, string(service.UID), is,
	)
	return err
}

func (b balancers) UpdateLoadBalancer(
	ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node,
) error {
	to, err := backends(nodes)
	if err != nil {
		return err
	}
	found, err := b.find(ctx, service)
	if err != nil {
		return err
	}
	for _, is := range found {
		if err := b.change(ctx, service, is, to); err != nil {
			return err
		}
	}
	return nil
}

func (b balancers) EnsureLoadBalancerDeleted(
	ctx context.Context, _ string, service *v1.Service,
) error {
	found, err := b.find(ctx, service)
	if err != nil {
		return err
	}
	for _, is := range found {
		if _, err := ask[struct{}](
			ctx, b.client, http.MethodDelete, "/v1/loadbalancers/"+is.ID, string(service.UID), nil,
		); err != nil {
			return err
		}
	}
	return nil
}

// backends returns the nodes' addresses. A node without one is an error: upstream tries again after
// an error, but not when a node that it knows gets its address.
func backends(nodes []*v1.Node) ([]string, error) {
	var addresses []string
	for _, n := range nodes {
		i := slices.IndexFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type == v1.NodeInternalIP })
		if i < 0 {
			return nil, fmt.Errorf("node %s has no internal address yet", n.Name)
		}
		addresses = append(addresses, n.Status.Addresses[i].Address)
	}
	slices.Sort(addresses)
	return addresses, nil
}

// instances implements cloudprovider.InstancesV2.
type instances struct{ *client }

func (c *client) instance(ctx context.Context, query url.Values) (sky.Instance, bool, error) {
	found, err := ask[[]sky.Instance](
		ctx, c, http.MethodGet, "/v1/instances?"+query.Encode(), "", nil,
	)
	if err != nil || len(found) == 0 {
		return sky.Instance{}, false, err
	}
	return found[0], true, nil
}

func (i instances) of(ctx context.Context, node *v1.Node) (sky.Instance, bool, error) {
	if id, is := strings.CutPrefix(node.Spec.ProviderID, Name+"://"); is {
		return i.instance(ctx, url.Values{"id": {id}})
	}
	return i.instance(ctx, url.Values{"name": {node.Name}})
}

func (i instances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, exists, err := i.of(ctx, node)
	return exists, err
}

func (i instances) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	is, exists, err := i.of(ctx, node)
	return exists && is.Stopped, err
}

func (i instances) InstanceMetadata(
	ctx context.Context, node *v1.Node,
) (*cloudprovider.InstanceMetadata, error) {
	is, exists, err := i.of(ctx, node)
	switch {
	case err != nil:
		return nil, err
	case !exists:
		return nil, cloudprovider.InstanceNotFound
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: Name + "://" + is.ID, InstanceType: is.Type, Zone: is.Zone, Region: is.Region,
		NodeAddresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: is.Address},
			{Type: v1.NodeHostName, Address: is.Name},
		},
	}, nil
}

// zones implements cloudprovider.Zones.
type zones struct{ *client }

func (zones) GetZone(context.Context) (cloudprovider.Zone, error) {
	return cloudprovider.Zone{}, cloudprovider.NotImplemented
}

func (z zones) zone(ctx context.Context, query url.Values) (cloudprovider.Zone, error) {
	is, exists, err := z.instance(ctx, query)
	if err == nil && !exists {
		err = cloudprovider.InstanceNotFound
	}
	return cloudprovider.Zone{FailureDomain: is.Zone, Region: is.Region}, err
}

func (z zones) GetZoneByProviderID(ctx context.Context, id string) (cloudprovider.Zone, error) {
	return z.zone(ctx, url.Values{"id": {strings.TrimPrefix(id, Name+"://")}})
}

func (z zones) GetZoneByNodeName(
	ctx context.Context, name types.NodeName,
) (cloudprovider.Zone, error) {
	return z.zone(ctx, url.Values{"name": {string(name)}})
}

// routes implements cloudprovider.Routes.
type routes struct{ *client }

func (r routes) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	found, err := ask[[]sky.Route](
		ctx, r.client, http.MethodGet, "/v1/routes?cluster="+url.QueryEscape(cluster), "", nil,
	)
	var all []*cloudprovider.Route
	for _, is := range found {
		all = append(
			all,
			&cloudprovider.Route{
				Name: is.ID, TargetNode: types.NodeName(is.Node), DestinationCIDR: is.CIDR,
			},
		)
	}
	return all, err
}

func (r routes) CreateRoute(
	ctx context.Context, cluster, _ string, route *cloudprovider.Route,
) error {
	want := sky.Route{Cluster: cluster, Node: string(route.TargetNode), CIDR: route.DestinationCIDR}
	_, err := ask[sky.Route](ctx, r.client, http.MethodPost, "/v1/routes", "", want)
	return err
}

func (r routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	_, err := ask[struct{}](ctx, r.client, http.MethodDelete, "/v1/routes/"+route.Name, "", nil)
	return err
}
