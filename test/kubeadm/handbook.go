package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

// handbook holds the pages whose commands the stages run.
type handbook struct{ pages []markdown.Page }

func readHandbook(root string) (*handbook, error) {
	pages, err := markdown.Read(root)
	return &handbook{pages}, err
}

const (
	installPage   = "docs/install.md"
	migrationPage = "docs/migration.md"
	// stopFleet is the block that stops a fleet before it is scaled to zero.
	stopFleet = "stop-fleet"
)

// named are the blocks that the stages run by name.
var named = []string{
	"flags", "keys-check", "my-fleet", "stop-stock", "start-stock",
	"static-save", "static-one", "static-config", "static-remember", "static-write", "static-diff", "static-check",
	"static-upgrade-first", "static-upgrade-others", "static-back",
	"beside-upgrade-first", "beside-upgrade-others",
	"set-image", "undo", "minor", "minor-undo",
	"canary-start", "canary-one", "canary-status", "canary-promote", "canary-abort",
	"shadow-apply", "shadow-logs", "shadow-delete", "shadow-helm", "shadow-helm-away", "shadow-process",
	"clear-leader-lock", stopFleet, "helm-upgrade", "helm-rollback",
	"hosted-identity", "hosted-kubeconfig", "hosted-secrets", "hosted-apply", "hosted-check", "hosted-renew", "hosted-away",
	"hosted-helm", "hosted-helm-upgrade", "hosted-helm-rollback", "hosted-helm-away",
}

// script returns the commands of a block that is marked for this test, by its name.
func (h *handbook) script(name string) (string, error) {
	if !slices.Contains(named, name) {
		return "", fmt.Errorf("block %q is not in the list of blocks that are run", name)
	}
	for _, p := range h.pages {
		for _, b := range p.Blocks {
			if b.Kubeadm() == name {
				return strings.Join(b.Lines, "\n"), nil
			}
		}
	}
	return "", fmt.Errorf("no block of the handbook is 'sh kubeadm %s'", name)
}

// image returns the image that a block passes to 'kubectl set image'.
func (h *handbook) image(name string) (string, error) {
	script, err := h.script(name)
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(script, " "+fleetName+"=")
	image := strings.Fields(rest)
	if len(image) == 0 {
		return "", fmt.Errorf("block %s sets no image:\n%s", name, script)
	}
	return image[0], nil
}

// section returns the blocks of a page's section that a test runs, in their order.
func (h *handbook) section(path, section string) ([]markdown.Block, error) {
	i := slices.IndexFunc(h.pages, func(p markdown.Page) bool { return p.Path == path })
	if i < 0 {
		return nil, fmt.Errorf("there is no page %s", path)
	}
	blocks := slices.DeleteFunc(slices.Clone(h.pages[i].Blocks), func(b markdown.Block) bool {
		return b.Section != section || !b.Runs() && b.Kubeadm() == ""
	})
	if len(blocks) == 0 {
		return nil, fmt.Errorf("%s: no block of section %q is run", path, section)
	}
	return blocks, nil
}
