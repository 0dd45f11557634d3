package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Event is one line of an audit log.
type Event struct{ auditv1.Event }

// Succeeded reports whether the event answers a request about a resource that was carried out.
func (e *Event) Succeeded() bool {
	return e.Stage == auditv1.StageResponseComplete && e.ObjectRef != nil && e.ResponseStatus != nil &&
		e.ResponseStatus.Code >= http.StatusOK && e.ResponseStatus.Code < http.StatusMultipleChoices
}

// Mutating reports whether the request would change something.
func (e *Event) Mutating() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb) && !strings.Contains(e.RequestURI, "dryRun=")
}

// IsLease reports whether the request concerns a Lease in kube-system.
func (e *Event) IsLease() bool {
	return e.ObjectRef.Resource == "leases" && e.ObjectRef.Namespace == metav1.NamespaceSystem
}

// Process returns the name of the binary, which is how client-go begins the User-Agent.
func (e *Event) Process() string {
	name, _, _ := strings.Cut(e.UserAgent, "/")
	return name
}

// Answer decodes the object in the response. It returns an error if the log has none.
func (e *Event) Answer(object any) error {
	if e.ResponseObject == nil {
		return errors.New("the answer has no object")
	}
	return json.Unmarshal(e.ResponseObject.Raw, object)
}

// Version returns the resourceVersion of the response, or 0 if it has none.
func (e *Event) Version() uint64 {
	var object metav1.PartialObjectMetadata
	if e.Verb == "deletecollection" || e.Answer(&object) != nil || object.Kind == "Status" {
		return 0
	}
	version, _ := strconv.ParseUint(object.ResourceVersion, 10, 64)
	return version
}

// String names the request.
func (e *Event) String() string {
	object := e.RequestURI
	if r := e.ObjectRef; r != nil {
		object = r.Resource + " " + r.Namespace + "/" + r.Name
	}
	return fmt.Sprintf("%s %s by %s as %s at %s", e.Verb, object, e.Process(), e.User.Username, e.RequestReceivedTimestamp.Format("15:04:05.000"))
}

// Events calls each with the events of an audit log, in order. It skips a last line without a
// newline: the server is still writing it and has answered nobody.
func Events(log io.Reader, each func(*Event) error) error {
	reader := bufio.NewReaderSize(log, 1<<20)
	for n := 1; ; n++ {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var e Event
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err == nil {
			err = each(&e)
		}
		if err != nil {
			return fmt.Errorf("audit log, line %d: %w", n, err)
		}
	}
}

// EventsOf is Events for a file.
func EventsOf(path string, each func(*Event) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return Events(file, each)
}

// Follow calls each with the events of a log as it grows, until ctx ends. It skips lines that are
// not JSON: a killed server may leave half a line.
func Follow(ctx context.Context, path string, each func(*Event)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	reader := bufio.NewReaderSize(file, 1<<20)
	var line []byte
	for {
		part, err := reader.ReadBytes('\n')
		line = append(line, part...)
		if err == nil {
			var e Event
			if json.Unmarshal(line, &e) == nil {
				each(&e)
			}
			line = line[:0]
			continue
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
