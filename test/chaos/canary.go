package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/command"
)

const (
	canaryName     = "canary"
	canaryInterval = time.Second
)

// canaries are ReplicaSets without pods, one in each namespace, whose specification changes once a
// second. The audit log shows how long the controller takes to see a change; see latencies.
type canaries struct {
	client     kubernetes.Interface
	namespaces []string
	failed     atomic.Int64
}

// prepare creates the ReplicaSets.
func (c *canaries) prepare(ctx context.Context) error {
	labels := map[string]string{"app": canaryName}
	for _, namespace := range c.namespaces {
		set := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: canaryName},
			Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(labels)},
		}
		if _, err := c.client.AppsV1().ReplicaSets(namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// Run changes every canary once a second until ctx ends, each at its own offset.
func (c *canaries) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for i, namespace := range c.namespaces {
		offset := canaryInterval * time.Duration(i) / time.Duration(len(c.namespaces))
		group.Go(func() {
			if command.Pause(ctx, offset) {
				c.change(ctx, namespace)
			}
		})
	}
}

func (c *canaries) change(ctx context.Context, namespace string) {
	ticker := time.NewTicker(canaryInterval)
	defer ticker.Stop()
	for i := 1; ; i++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		// Any change of the specification increments the generation. Without pods, this one has no
		// other effect.
		patch := fmt.Appendf(nil, `{"spec":{"minReadySeconds":%d}}`, i%1000)
		limited, cancel := context.WithTimeout(ctx, requestLimit)
		if _, err := c.client.AppsV1().ReplicaSets(namespace).Patch(limited, canaryName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			c.failed.Add(1)
		}
		cancel()
	}
}

// spreadNamespaces returns namespace names, one in each namespaced shard of the plan, and the shard
// of each.
func spreadNamespaces(plan shard.Plan) ([]string, map[string]shard.ID) {
	var names []string
	homes := map[string]shard.ID{}
	for _, s := range plan.Shards() {
		if !s.Namespaced() {
			continue
		}
		// The varying part comes first, because the hash hardly separates names that differ only at
		// the end.
		for i := 0; ; i++ {
			name := fmt.Sprintf("c%d-chaos", i)
			if _, taken := homes[name]; !taken && s.Range.ContainsNamespace(name) {
				names = append(names, name)
				homes[name] = s.ID
				break
			}
		}
	}
	return names, homes
}
