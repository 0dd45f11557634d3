package controllers

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// newClientset returns a clientset whose requests for events wait for the rate limit in turn.
//
// Upstream's controllers send events with the client that they work with, from one goroutine a controller: where the limit is the
// bound, one event passes for as many requests as there are workers. A goroutine in each shard would take a multiple of that from
// the work.
func newClientset(config *rest.Config, limiter inTurn) (kubernetes.Interface, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	all, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.RateLimiter = limiter
	events, err := corev1client.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("for events: %w", err)
	}
	return clientset{all, coreClient{all.CoreV1(), events}}, nil
}

// clientset is a clientset with another client for events of the core group; no controller of upstream's sends others.
type clientset struct {
	kubernetes.Interface
	core corev1client.CoreV1Interface
}

// CoreV1 implements kubernetes.Interface.
func (c clientset) CoreV1() corev1client.CoreV1Interface { return c.core }

type coreClient struct {
	corev1client.CoreV1Interface
	events corev1client.EventsGetter
}

// Events implements corev1client.CoreV1Interface.
func (c coreClient) Events(namespace string) corev1client.EventInterface {
	return c.events.Events(namespace)
}

// inTurn is a limiter for which one waits at a time, of all who have the same turn, until closed is.
type inTurn struct {
	openLimiter
	// turn is full while somebody waits.
	turn chan struct{}
}

// Wait implements flowcontrol.RateLimiter.
func (l inTurn) Wait(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-l.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.openLimiter.Wait(ctx)
}
