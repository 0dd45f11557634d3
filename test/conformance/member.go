package main

import (
	"context"
	"sync"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// member is one member of the fleet: a process that can be ended and started again. Its methods may
// be called from any goroutine, but those that start or end it from only one at a time.
type member struct {
	plane *controlplane.ControlPlane
	spec  harness.Spec

	mu      sync.Mutex
	process *harness.Manager
	// away is set while the process has been ended on purpose.
	away bool
}

func newMember(plane *controlplane.ControlPlane, name string) (*member, error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	return &member{plane: plane, spec: harness.Spec{Name: name, Port: port, Flags: append(managerFlags(), "--member-name="+name)}}, nil
}

func (m *member) name() string { return m.spec.Name }

func (m *member) start() error {
	p, err := harness.Start(m.plane, m.spec)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process, m.away = p, false
	return nil
}

// leaving records that the process is about to end, and returns it.
func (m *member) leaving() *harness.Manager {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = true
	return m.process
}

// kill ends the member without warning.
func (m *member) kill() error { return m.leaving().Kill() }

// leave shuts the member down in good order; it must exit with status 0.
func (m *member) leave(ctx context.Context) error { return m.leaving().Leave(ctx) }

// alive returns an error if the process ended on its own.
func (m *member) alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return nil
	}
	return m.process.Running()
}
