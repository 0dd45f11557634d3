package main

import (
	"encoding/json"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// entry is what is read of one line of the audit log.
type entry struct {
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus *struct {
		Code int32 `json:"code"`
	} `json:"responseStatus"`
	ResponseObject json.RawMessage  `json:"responseObject"`
	Received       metav1.MicroTime `json:"requestReceivedTimestamp"`
	Answered       metav1.MicroTime `json:"stageTimestamp"`
	Stage          string           `json:"stage"`
}

// wrote tells whether the request has changed something.
func (e entry) wrote() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return false
	}
	return e.Stage == "ResponseComplete" && e.ObjectRef != nil && e.ResponseStatus != nil &&
		e.ResponseStatus.Code >= 200 && e.ResponseStatus.Code < 300
}

// isLease tells whether it is a Lease of the namespace in which members coordinate.
func (e entry) isLease() bool {
	return e.ObjectRef.Resource == "leases" && e.ObjectRef.Namespace == metav1.NamespaceSystem
}

// counts tells whether it is a write that somebody wants for its own sake: no sign of life, no record of an event.
func (e entry) counts() bool {
	return e.ObjectRef.Resource != "leases" && e.ObjectRef.Resource != "events"
}

// isCanary tells whether it is a write of a canary.
func (e entry) isCanary() bool {
	return e.ObjectRef.Resource == "replicasets" && e.ObjectRef.Name == canaryName
}

// fromStock tells whether the stock controller manager has sent it.
func (e entry) fromStock() bool { return strings.HasPrefix(e.UserAgent, stockName+"/") }

// lease returns the Lease in the answer and its version.
func (e entry) lease() (*coordinationv1.Lease, uint64, bool) {
	var lease coordinationv1.Lease
	if json.Unmarshal(e.ResponseObject, &lease) != nil {
		return nil, 0, false
	}
	version, err := strconv.ParseUint(lease.ResourceVersion, 10, 64)
	return &lease, version, err == nil
}

// replicaSet returns the ReplicaSet in the answer.
func (e entry) replicaSet() (*appsv1.ReplicaSet, bool) {
	var set appsv1.ReplicaSet
	return &set, json.Unmarshal(e.ResponseObject, &set) == nil
}
