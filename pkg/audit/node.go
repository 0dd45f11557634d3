package audit

import (
	"cmp"
	"slices"
)

// nodeState is a node after one write.
type nodeState struct {
	moment
	// evicts is set while a taint makes pods leave, or the node is being deleted.
	evicts bool
	// placement is the fingerprint of everything that decides where a DaemonSet places its pods.
	placement uint64
	created   bool
}

// node is all nodes of one name, one after the other.
type node struct {
	states []nodeState
	ended  []ending
}

// tolerated are the taints that all pods of a DaemonSet tolerate, or that come and go with the
// node's health.
var tolerated = []string{
	"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/disk-pressure",
	"node.kubernetes.io/memory-pressure", "node.kubernetes.io/pid-pressure", "node.kubernetes.io/unschedulable",
}

func readNodeState(o object, at moment) nodeState {
	type taint struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Effect string `json:"effect"`
	}
	var spec struct {
		Taints []taint `json:"taints"`
	}
	decode(orEmpty(o.Spec), &spec)
	s := nodeState{moment: at, evicts: o.Metadata.DeletionTimestamp != ""}
	var placing []taint
	for _, t := range spec.Taints {
		s.evicts = s.evicts || t.Effect == "NoExecute"
		if !slices.Contains(tolerated, t.Key) {
			placing = append(placing, t)
		}
	}
	s.placement = fingerprint(o.Metadata.Labels, placing)
	return s
}

func (n *node) sort() {
	slices.SortStableFunc(n.states, func(a, b nodeState) int { return cmp.Compare(a.version, b.version) })
}

// between returns the states in force at any time between two moments: from the last one that
// surely existed before the first moment, or from the node's creation. It returns none if the log
// does not show them.
func (n *node) between(from, to moment) []nodeState {
	first, last := -1, -1
	for i, s := range n.states {
		if s.answered.Before(from.received) {
			first = i
		}
		if s.maybeBefore(to) {
			last = i
		}
	}
	if first < 0 && len(n.states) > 0 && n.states[0].created {
		first = 0
	}
	if first < 0 || last < first {
		return nil
	}
	return n.states[first : last+1]
}
