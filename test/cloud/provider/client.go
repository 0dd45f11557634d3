package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/flotilla-kube/flotilla/test/cloud/sky"
)

// client sends requests to the API.
type client struct {
	url, token string
	http       *http.Client
	// careless sends requests without the context of the call, as many SDKs do.
	careless bool
}

// ask sends a request about a Service, or about none if uid is empty, and decodes the answer.
func ask[T any](ctx context.Context, c *client, method, path, uid string, body any) (T, error) {
	var answer T
	if c.careless {
		ctx = context.WithoutCancel(ctx)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	for {
		after, err := c.try(ctx, method, path, uid, text, &answer)
		if err != nil || after == 0 {
			return answer, err
		}
		// Jitter keeps clients from all coming back at once.
		timer := time.NewTimer(after + rand.N(after/2+time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return answer, context.Cause(ctx)
		}
	}
}

// try sends a request once. It returns how long to wait before the next try, if the cloud says so.
func (c *client) try(
	ctx context.Context, method, path, uid string, text []byte, answer any,
) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("User-Agent", "sky")
	req.Header.Set(sky.ServiceHeader, uid)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return 0, json.NewDecoder(resp.Body).Decode(answer)
	case http.StatusTooManyRequests:
		ms, err := strconv.Atoi(resp.Header.Get(sky.RetryAfter))
		_, _ = io.Copy(io.Discard, resp.Body)
		return time.Duration(ms) * time.Millisecond, err
	default:
		why, _ := io.ReadAll(resp.Body)
		return 0, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(why))
	}
}
