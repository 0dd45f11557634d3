package ceiling

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/flotilla-kube/flotilla/test/command"
)

const (
	// retryAfter and mostRetries bound the wait for the end of an object whose name is reused: a
	// node must release it.
	retryAfter  = 100 * time.Millisecond
	mostRetries = 300
	// mostRead is the size of the largest answer that is read.
	mostRead = 64 << 20
)

// client sends requests to one API server.
type client struct {
	base *url.URL
	http *http.Client
}

// answer is the part of an answer that is read.
type answer struct {
	code         int // 0: no answer
	reason       string
	message      string
	uid, version string
}

func (a answer) ok() bool { return a.code >= 200 && a.code < 300 }

// do sends one request. It reads the written object only if asked to.
func (c client) do(ctx context.Context, method, uri, kind string, body []byte, read bool) answer {
	target, err := c.base.Parse(uri)
	if err != nil {
		return answer{message: err.Error()}
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return answer{message: err.Error()}
	}
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	// As controllers request it.
	request.Header.Set("Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON)
	response, err := c.http.Do(request)
	if err != nil {
		return answer{message: err.Error()}
	}
	defer response.Body.Close()
	a := answer{code: response.StatusCode}
	if a.ok() && !read {
		// An unread body would keep the connection from being reused.
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return answer{message: err.Error()}
		}
		return a
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, mostRead))
	if err != nil {
		return answer{message: err.Error()}
	}
	a.parse(text)
	return a
}

func (a *answer) parse(text []byte) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		var partial metav1.PartialObjectMetadata
		err = json.Unmarshal(text, &partial)
		object = &partial
	}
	if err != nil {
		a.message = string(text[:min(len(text), 200)])
		return
	}
	if status, ok := object.(*metav1.Status); ok {
		a.reason, a.message = string(status.Reason), status.Message
		return
	}
	if accessor, err := meta.Accessor(object); err == nil {
		a.uid, a.version = string(accessor.GetUID()), accessor.GetResourceVersion()
	}
}

// read returns UID and resourceVersion of an object.
func (c client) read(ctx context.Context, path string) (answer, error) {
	a := c.do(ctx, http.MethodGet, path, "", nil, true)
	if !a.ok() {
		return a, errors.New(a.message)
	}
	return a, nil
}

var methods = map[string]string{
	"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete, "deletecollection": http.MethodDelete,
}

// send sends a request of the recording and keeps what later ones need from its answer.
func (p *player) send(ctx context.Context, q request, follows bool) {
	a := p.try(ctx, q)
	for range mostRetries {
		// The object of that name was deleted in the recording, and is not gone yet.
		if q.verb != "create" || !follows || a.reason != string(metav1.StatusReasonAlreadyExists) || ctx.Err() != nil {
			break
		}
		command.Pause(ctx, retryAfter)
		p.mu.Lock()
		p.out.Retries++
		p.mu.Unlock()
		a = p.try(ctx, q)
	}
	if q.versioned && a.reason == string(metav1.StatusReasonConflict) {
		// Somebody else, such as a node, has written it.
		p.mu.Lock()
		delete(p.versions, q.object)
		p.out.Retries++
		p.mu.Unlock()
		a = p.try(ctx, q)
	}
	if p.preparing && q.verb == "create" && a.reason == string(metav1.StatusReasonAlreadyExists) {
		a, _ = p.read(ctx, q.object)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !a.ok() {
		p.fail(q, a)
		return
	}
	if q.uid != "" && a.uid != "" {
		p.uids[q.uid] = a.uid
	}
	if a.version != "" {
		p.versions[q.object] = a.version
	}
}

func (p *player) try(ctx context.Context, q request) answer {
	p.mu.Lock()
	version := p.versions[q.object]
	p.mu.Unlock()
	body := q.with(func(uid string) (string, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		now, ok := p.uids[uid]
		return now, ok
	})
	if q.versioned {
		if version == "" {
			now, err := p.read(ctx, q.object)
			if err != nil {
				return now
			}
			version = now.version
		}
		var err error
		if body, err = versionedBody(body, version); err != nil {
			return answer{message: err.Error()}
		}
	}
	return p.do(ctx, methods[q.verb], q.uri, q.kind, body, q.uid != "" || p.insisting[q.object])
}

// fail counts a failure; mu is held.
func (p *player) fail(q request, a answer) {
	p.out.Failed++
	p.out.Failures[strings.TrimSpace(fmt.Sprintf("%s %s %d %s", q.verb, resourceOf(q), a.code, a.reason))]++
	if len(p.out.Examples) < kept {
		p.out.Examples = append(p.out.Examples, fmt.Sprintf("%s %s: %s", q.verb, q.uri, a.message))
	}
}

// resourceOf returns the resource in the path of an object.
func resourceOf(q request) string {
	parts := strings.Split(q.object, "/")
	return parts[max(len(parts)-2, 0)]
}
