package cloud

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// guarded is a provider's cloud as the controllers of one shard see it: each call passes the guard.
//
// It returns the cloud's errors unchanged, because upstream compares some of them by identity.
type guarded struct {
	cloud cloudprovider.Interface
	guard *guard
}

var _ cloudprovider.Interface = guarded{}

// Unwrap returns the provider's own cloud from the one that a controller's constructor receives,
// for methods that are not in cloudprovider.Interface. Calls to it are not guarded. [Transport]
// fences them if they pass on the context that the constructor's InitFunc receives.
func Unwrap(cloud cloudprovider.Interface) cloudprovider.Interface {
	if g, is := cloud.(guarded); is {
		return g.cloud
	}
	return cloud
}

// Initialize does nothing: the cloud was initialized for the process.
func (g guarded) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

func (g guarded) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	of, has := g.cloud.LoadBalancer()
	return guardedBalancer{of, g.guard}, has
}

func (g guarded) Instances() (cloudprovider.Instances, bool) {
	of, has := g.cloud.Instances()
	return guardedInstances{of, g.guard}, has
}

func (g guarded) InstancesV2() (cloudprovider.InstancesV2, bool) {
	of, has := g.cloud.InstancesV2()
	return guardedInstancesV2{of, g.guard}, has
}

func (g guarded) Zones() (cloudprovider.Zones, bool) {
	of, has := g.cloud.Zones()
	return guardedZones{of, g.guard}, has
}

func (g guarded) Clusters() (cloudprovider.Clusters, bool) {
	of, has := g.cloud.Clusters()
	return guardedClusters{of, g.guard}, has
}

func (g guarded) Routes() (cloudprovider.Routes, bool) {
	of, has := g.cloud.Routes()
	return guardedRoutes{of, g.guard}, has
}

func (g guarded) ProviderName() string { return g.cloud.ProviderName() }

func (g guarded) HasClusterID() bool { return g.cloud.HasClusterID() }

// guardedBalancer is a cloudprovider.LoadBalancer.
type guardedBalancer struct {
	of    cloudprovider.LoadBalancer
	guard *guard
}

func (b guardedBalancer) GetLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service,
) (*v1.LoadBalancerStatus, bool, error) {
	var exists bool
	status, err := through(ctx, b.guard, "GetLoadBalancer",
		func(call context.Context) (status *v1.LoadBalancerStatus, err error) {
			status, exists, err = b.of.GetLoadBalancer(call, cluster, service)
			return status, err
		})
	return status, exists, err
}

// GetLoadBalancerName only computes, and cannot return an error: it always passes.
func (b guardedBalancer) GetLoadBalancerName(
	ctx context.Context, cluster string, service *v1.Service,
) string {
	return b.of.GetLoadBalancerName(ctx, cluster, service)
}

func (b guardedBalancer) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	return through(ctx, b.guard, "EnsureLoadBalancer",
		func(call context.Context) (*v1.LoadBalancerStatus, error) {
			return b.of.EnsureLoadBalancer(call, cluster, service, nodes)
		})
}

func (b guardedBalancer) UpdateLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) error {
	return do(ctx, b.guard, "UpdateLoadBalancer", func(call context.Context) error {
		return b.of.UpdateLoadBalancer(call, cluster, service, nodes)
	})
}

func (b guardedBalancer) EnsureLoadBalancerDeleted(
	ctx context.Context, cluster string, service *v1.Service,
) error {
	return do(ctx, b.guard, "EnsureLoadBalancerDeleted", func(call context.Context) error {
		return b.of.EnsureLoadBalancerDeleted(call, cluster, service)
	})
}

// guardedInstances is a cloudprovider.Instances.
type guardedInstances struct {
	of    cloudprovider.Instances
	guard *guard
}

func (i guardedInstances) NodeAddresses(
	ctx context.Context, name types.NodeName,
) ([]v1.NodeAddress, error) {
	return through(ctx, i.guard, "NodeAddresses",
		func(call context.Context) ([]v1.NodeAddress, error) {
			return i.of.NodeAddresses(call, name)
		})
}

func (i guardedInstances) NodeAddressesByProviderID(
	ctx context.Context, id string,
) ([]v1.NodeAddress, error) {
	return through(ctx, i.guard, "NodeAddressesByProviderID",
		func(call context.Context) ([]v1.NodeAddress, error) {
			return i.of.NodeAddressesByProviderID(call, id)
		})
}

func (i guardedInstances) InstanceID(ctx context.Context, name types.NodeName) (string, error) {
	return through(ctx, i.guard, "InstanceID", func(call context.Context) (string, error) {
		return i.of.InstanceID(call, name)
	})
}

func (i guardedInstances) InstanceType(ctx context.Context, name types.NodeName) (string, error) {
	return through(ctx, i.guard, "InstanceType", func(call context.Context) (string, error) {
		return i.of.InstanceType(call, name)
	})
}

func (i guardedInstances) InstanceTypeByProviderID(ctx context.Context, id string) (string, error) {
	return through(ctx, i.guard, "InstanceTypeByProviderID",
		func(call context.Context) (string, error) {
			return i.of.InstanceTypeByProviderID(call, id)
		})
}

func (i guardedInstances) AddSSHKeyToAllInstances(
	ctx context.Context, user string, key []byte,
) error {
	return do(ctx, i.guard, "AddSSHKeyToAllInstances", func(call context.Context) error {
		return i.of.AddSSHKeyToAllInstances(call, user, key)
	})
}

func (i guardedInstances) CurrentNodeName(
	ctx context.Context, hostname string,
) (types.NodeName, error) {
	return through(ctx, i.guard, "CurrentNodeName",
		func(call context.Context) (types.NodeName, error) {
			return i.of.CurrentNodeName(call, hostname)
		})
}

func (i guardedInstances) InstanceExistsByProviderID(ctx context.Context, id string) (bool, error) {
	return through(ctx, i.guard, "InstanceExistsByProviderID",
		func(call context.Context) (bool, error) {
			return i.of.InstanceExistsByProviderID(call, id)
		})
}

func (i guardedInstances) InstanceShutdownByProviderID(
	ctx context.Context, id string,
) (bool, error) {
	return through(ctx, i.guard, "InstanceShutdownByProviderID",
		func(call context.Context) (bool, error) {
			return i.of.InstanceShutdownByProviderID(call, id)
		})
}

// guardedInstancesV2 is a cloudprovider.InstancesV2.
type guardedInstancesV2 struct {
	of    cloudprovider.InstancesV2
	guard *guard
}

func (i guardedInstancesV2) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	return through(ctx, i.guard, "InstanceExists", func(call context.Context) (bool, error) {
		return i.of.InstanceExists(call, node)
	})
}

func (i guardedInstancesV2) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	return through(ctx, i.guard, "InstanceShutdown", func(call context.Context) (bool, error) {
		return i.of.InstanceShutdown(call, node)
	})
}

func (i guardedInstancesV2) InstanceMetadata(
	ctx context.Context, node *v1.Node,
) (*cloudprovider.InstanceMetadata, error) {
	return through(ctx, i.guard, "InstanceMetadata",
		func(call context.Context) (*cloudprovider.InstanceMetadata, error) {
			return i.of.InstanceMetadata(call, node)
		})
}

// guardedZones is a cloudprovider.Zones.
type guardedZones struct {
	of    cloudprovider.Zones
	guard *guard
}

func (z guardedZones) GetZone(ctx context.Context) (cloudprovider.Zone, error) {
	return through(ctx, z.guard, "GetZone", z.of.GetZone)
}

func (z guardedZones) GetZoneByProviderID(
	ctx context.Context, id string,
) (cloudprovider.Zone, error) {
	return through(ctx, z.guard, "GetZoneByProviderID",
		func(call context.Context) (cloudprovider.Zone, error) {
			return z.of.GetZoneByProviderID(call, id)
		})
}

func (z guardedZones) GetZoneByNodeName(
	ctx context.Context, name types.NodeName,
) (cloudprovider.Zone, error) {
	return through(ctx, z.guard, "GetZoneByNodeName",
		func(call context.Context) (cloudprovider.Zone, error) {
			return z.of.GetZoneByNodeName(call, name)
		})
}

// guardedClusters is a cloudprovider.Clusters.
type guardedClusters struct {
	of    cloudprovider.Clusters
	guard *guard
}

func (c guardedClusters) ListClusters(ctx context.Context) ([]string, error) {
	return through(ctx, c.guard, "ListClusters", c.of.ListClusters)
}

func (c guardedClusters) Master(ctx context.Context, cluster string) (string, error) {
	return through(ctx, c.guard, "Master", func(call context.Context) (string, error) {
		return c.of.Master(call, cluster)
	})
}

// guardedRoutes is a cloudprovider.Routes.
type guardedRoutes struct {
	of    cloudprovider.Routes
	guard *guard
}

func (r guardedRoutes) ListRoutes(
	ctx context.Context, cluster string,
) ([]*cloudprovider.Route, error) {
	return through(ctx, r.guard, "ListRoutes",
		func(call context.Context) ([]*cloudprovider.Route, error) {
			return r.of.ListRoutes(call, cluster)
		})
}

func (r guardedRoutes) CreateRoute(
	ctx context.Context, cluster, hint string, route *cloudprovider.Route,
) error {
	return do(ctx, r.guard, "CreateRoute", func(call context.Context) error {
		return r.of.CreateRoute(call, cluster, hint, route)
	})
}

func (r guardedRoutes) DeleteRoute(
	ctx context.Context, cluster string, route *cloudprovider.Route,
) error {
	return do(ctx, r.guard, "DeleteRoute", func(call context.Context) error {
		return r.of.DeleteRoute(call, cluster, route)
	})
}
