package audit

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
)

// object is what is read of the object in an answer, of any kind.
type object struct {
	Kind     string          `json:"kind"`
	Metadata metadata        `json:"metadata"`
	Spec     json.RawMessage `json:"spec"`
	Status   json.RawMessage `json:"status"`
	slice
	// Details come from a Status, and say what was deleted.
	Details struct {
		UID string `json:"uid"`
	} `json:"details"`
	// Items come from a list, the answer to a deletecollection.
	Items []struct {
		Metadata metadata `json:"metadata"`
	} `json:"items"`
}

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Generation        int64             `json:"generation"`
	DeletionTimestamp string            `json:"deletionTimestamp"`
	GracePeriod       *int64            `json:"deletionGracePeriodSeconds"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	OwnerReferences   []reference       `json:"ownerReferences"`
}

// reference is an owner reference.
type reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// group returns the API group of the reference; the core group is empty.
func (r reference) group() string {
	group, _, found := strings.Cut(r.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// controller returns the UID of the controller among the owners, or "".
func (m metadata) controller() string {
	for _, r := range m.OwnerReferences {
		if r.Controller {
			return r.UID
		}
	}
	return ""
}

// readObject returns the object in an answer, and whether there is one that can be read.
func readObject(raw json.RawMessage) (object, bool) {
	var o object
	if len(raw) == 0 || !decode(raw, &o) {
		return object{}, false
	}
	return o, true
}

// decode fills in what fits: a custom resource may use the same field names for something else.
func decode(raw json.RawMessage, into any) bool {
	err := json.Unmarshal(raw, into)
	var mismatch *json.UnmarshalTypeError
	return err == nil || errors.As(err, &mismatch)
}

// version returns the resourceVersion, or 0 if there is none.
func (o object) version() uint64 {
	version, err := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// whole reports whether the answer is the object itself, not only its metadata, its scale, or a
// Status.
func (o object) whole() bool {
	switch o.Kind {
	case "Status", "PartialObjectMetadata", "Scale", "Table", "":
		return false
	default:
		return o.Metadata.UID != "" && o.version() > 0
	}
}

// fingerprint of anything that can be written as JSON, to see whether it has changed.
func fingerprint(values ...any) uint64 {
	h := fnv.New64a()
	// Errors cannot occur: all values were read from JSON.
	_ = json.NewEncoder(h).Encode(values)
	return h.Sum64()
}
