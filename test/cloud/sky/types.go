package sky

// LoadBalancer forwards each of its ports to the node port on each of its backends.
type LoadBalancer struct {
	ID string `json:"id"`
	// UID and Service are tags that name the Service it was created for.
	UID     string `json:"uid"`
	Service string `json:"service"`
	// Address is where it listens. The cloud chooses it.
	Address  string   `json:"address"`
	Ports    []Port   `json:"ports"`
	Backends []string `json:"backends"`
}

// Port is a port of a load balancer.
type Port struct {
	Port     int32 `json:"port"`
	NodePort int32 `json:"nodePort"`
}

// Instance is a machine.
type Instance struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Zone    string `json:"zone"`
	Region  string `json:"region"`
	Address string `json:"address"`
	Stopped bool   `json:"stopped"`
}

// Route leads a range of addresses to a node.
type Route struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	CIDR    string `json:"cidr"`
}
