package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/test/docs/page"
)

// handbook has the pages whose commands the stages run.
type handbook struct{ pages []page.Page }

func readHandbook(root string) (*handbook, error) {
	pages, err := page.Read(root)
	return &handbook{pages}, err
}

const installPage = "docs/install.md"

// named are the blocks that the stages run by their names.
var named = []string{
	"flags", "keys-check", "my-fleet", "stop-stock", "start-stock",
	"static-save", "static-one", "static-config", "static-remember", "static-write", "static-diff", "static-check",
	"static-upgrade-first", "static-upgrade-others", "static-back",
	"beside-upgrade-first", "beside-upgrade-others",
	"set-image", "undo", "helm-upgrade", "helm-rollback",
	"hosted-identity", "hosted-kubeconfig", "hosted-secrets", "hosted-apply", "hosted-check", "hosted-renew", "hosted-away",
	"hosted-helm", "hosted-helm-upgrade", "hosted-helm-rollback", "hosted-helm-away",
}

// script returns the commands of a block that is for this test, by its name.
func (h *handbook) script(name string) (string, error) {
	if !slices.Contains(named, name) {
		return "", fmt.Errorf("block %q is not in the list of those that are run", name)
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

// section returns the blocks of a section of a page that a test runs, in their order.
func (h *handbook) section(path, section string) ([]page.Block, error) {
	i := slices.IndexFunc(h.pages, func(p page.Page) bool { return p.Path == path })
	if i < 0 {
		return nil, fmt.Errorf("there is no page %s", path)
	}
	blocks := slices.DeleteFunc(slices.Clone(h.pages[i].Blocks), func(b page.Block) bool {
		return b.Section != section || !b.Runs() && b.Kubeadm() == ""
	})
	if len(blocks) == 0 {
		return nil, fmt.Errorf("%s: nothing of section %q is run", path, section)
	}
	return blocks, nil
}
