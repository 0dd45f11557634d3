package ceiling

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// uids matches possible UIDs.
var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// encode sets the body from the logged one.
func (q *request) encode(e auditv1.Event, name string) error {
	if e.RequestObject == nil || len(e.RequestObject.Raw) == 0 {
		if strings.HasPrefix(q.verb, "delete") {
			return nil
		}
		return fmt.Errorf("no body; the log must be made with objects (controlplane.Options.AuditObjects)")
	}
	var err error
	switch q.verb {
	case "patch":
		q.kind, q.body, err = patch(e)
	case "delete", "deletecollection":
		q.kind, q.body, err = options(e.RequestObject.Raw)
	default:
		err = q.encodeObject(e, name)
	}
	if err != nil {
		return fmt.Errorf("body: %w", err)
	}
	for _, at := range uids.FindAllIndex(q.body, -1) {
		q.mentions = append(q.mentions, mention{offset: at[0], uid: string(q.body[at[0]:at[1]])})
	}
	return nil
}

// encodeObject encodes an object as a controller's client would: protobuf for the types that
// client-go knows.
func (q *request) encodeObject(e auditv1.Event, name string) error {
	var object map[string]any
	if err := json.Unmarshal(e.RequestObject.Raw, &object); err != nil {
		return err
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		object["metadata"] = metadata
	}
	// If these are absent, the API server keeps its own. The UID stays, because it is replaced.
	for _, field := range []string{"resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(metadata, field)
	}
	if given, _ := metadata["name"].(string); q.verb == "create" && given == "" && name != "" {
		metadata["name"] = name
	}
	if e.ObjectRef.Resource == "pods" && e.ObjectRef.Subresource == "" && q.verb == "create" {
		q.account = accountOf(object, e.ObjectRef.Namespace)
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	q.kind, q.body = runtime.ContentTypeJSON, text
	if q.versioned {
		return nil // its resourceVersion is added later
	}
	known, kind, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) {
		return nil
	}
	if err != nil {
		return err
	}
	known.GetObjectKind().SetGroupVersionKind(*kind)
	encoded, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), known)
	if err != nil {
		return err
	}
	q.kind, q.body = runtime.ContentTypeProtobuf, encoded
	return nil
}

func accountOf(pod map[string]any, namespace string) string {
	name := "default"
	spec, _ := pod["spec"].(map[string]any)
	if named, _ := spec["serviceAccountName"].(string); named != "" {
		name = named
	}
	return place(auditv1.ObjectReference{APIVersion: "v1", Resource: "serviceaccounts", Namespace: namespace, Name: name})
}

// patch returns the body and the type of a patch, which the log does not record. It is an apply if
// it has a field manager and a kind, and otherwise of the type that its form allows. Client-go's
// controllers send strategic patches to built-in types.
func patch(e auditv1.Event) (kind string, body []byte, err error) {
	raw := e.RequestObject.Raw
	var list []any
	if json.Unmarshal(raw, &list) == nil {
		return string(types.JSONPatchType), raw, nil
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return "", nil, err
	}
	switch _, typed := object["kind"]; {
	case typed && strings.Contains(e.RequestURI, "fieldManager="):
		kind = string(types.ApplyYAMLPatchType)
	case builtIn(e.ObjectRef.APIGroup):
		kind = string(types.StrategicMergePatchType)
	default:
		kind = string(types.MergePatchType)
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "resourceVersion")
	}
	body, err = json.Marshal(object)
	return kind, body, err
}

// builtIn reports whether a group's types are compiled into the API server.
func builtIn(group string) bool {
	return slices.ContainsFunc(scheme.Scheme.PrioritizedVersionsAllGroups(), func(gv schema.GroupVersion) bool { return gv.Group == group })
}

// options returns the options of a delete without preconditions, in a version that clients may
// send.
func options(raw []byte) (kind string, body []byte, err error) {
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return "", nil, err
	}
	delete(object, "preconditions")
	object["kind"], object["apiVersion"] = "DeleteOptions", "v1"
	body, err = json.Marshal(object)
	return runtime.ContentTypeJSON, body, err
}

// with returns the body with UIDs replaced by the results of now.
func (q request) with(now func(uid string) (string, bool)) []byte {
	if len(q.mentions) == 0 {
		return q.body
	}
	body := slices.Clone(q.body)
	for _, m := range q.mentions {
		if uid, ok := now(m.uid); ok && len(uid) == uidLength {
			copy(body[m.offset:], uid)
		}
	}
	return body
}

// versionedBody returns a JSON body with a resourceVersion.
func versionedBody(body []byte, version string) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		return nil, fmt.Errorf("no metadata")
	}
	metadata["resourceVersion"] = version
	return json.Marshal(object)
}
