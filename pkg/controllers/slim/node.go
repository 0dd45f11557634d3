package slim

import (
	v1 "k8s.io/api/core/v1"
)

// Nodes is the resource whose objects Node makes slim copies of.
var Nodes = v1.SchemeGroupVersion.WithResource("nodes")

// Node returns a slim copy of obj, which must be a *v1.Node; it returns anything else unchanged.
func Node(obj any) any {
	node, ok := obj.(*v1.Node)
	if !ok {
		return obj
	}
	slim := &v1.Node{
		ObjectMeta: metadata(&node.ObjectMeta),
		Spec:       v1.NodeSpec{Taints: node.Spec.Taints},
		Status: v1.NodeStatus{
			Allocatable: node.Status.Allocatable,
			Conditions:  only(node.Status.Conditions, func(c *v1.NodeCondition) bool { return c.Type == v1.NodeReady }),
		},
	}
	slim.Labels = node.Labels
	return slim
}
