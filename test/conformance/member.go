package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// member is one member of the fleet: a process that may be ended and started again. Its methods may be called from any
// goroutine, those that start or end it from one at a time.
type member struct {
	name, binary string
	plane        *controlplane.ControlPlane
	args         []string

	mu      sync.Mutex
	process *controlplane.Process
	// away is set while the process has been ended on purpose.
	away bool
}

func newMember(plane *controlplane.ControlPlane, name string) (*member, error) {
	binary, err := plane.Binary(fleetName)
	if err != nil {
		return nil, fmt.Errorf("%w: run 'make build'", err)
	}
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	return &member{name: name, binary: binary, plane: plane, args: append(managerArgs(plane, port), "--member-name="+name)}, nil
}

func (m *member) start() error {
	p, err := m.plane.StartProcess(m.name, m.binary, m.args)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process, m.away = p, false
	return nil
}

// leaving notes that the process may end, and returns it.
func (m *member) leaving() *controlplane.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = true
	return m.process
}

// kill ends the member without a warning.
func (m *member) kill() error { return m.leaving().Kill() }

// leave ends the member in good order, which must be with status 0.
func (m *member) leave(ctx context.Context) error {
	p := m.leaving()
	if err := p.Stop(ctx); err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%s left with %w, see %s", m.name, err, p.LogPath())
	}
	return nil
}

// alive returns an error if the process has ended by itself.
func (m *member) alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return nil
	}
	select {
	case <-m.process.Done():
		return fmt.Errorf("%s has ended by itself: %v, see %s", m.name, m.process.Wait(), m.process.LogPath())
	default:
		return nil
	}
}
