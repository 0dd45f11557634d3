package main

import (
	"fmt"
	"slices"
	"strings"
)

// step is one row of the table.
type step struct {
	name string
	// what it does, and how long that takes on two cores: printed before it runs.
	what, long string
	// needs are what the machine must have; without them the step is skipped.
	needs []need
	// tools are binaries of hack/build-tools.sh, built before the first step.
	tools []string
	// member is set if the step runs bin/flotilla.
	member bool
	// waits is set if the step mostly waits, and shares neither directories nor ports with a step
	// beside it. Another waiting step, and fitting steps, may run beside it.
	waits bool
	// sole is set if the step waits, but leaves no room for another waiting step.
	sole bool
	// computes is set if the step only needs CPU. It gives way to a step beside it.
	computes bool
	// light is set if the step needs little CPU, and shares neither directories nor ports with a
	// step beside it. It runs beside steps that wait or compute, and beside another light one.
	light bool
	// changed appends the changed packages to the last command, and leaves the step out if there
	// are none.
	changed bool
	// commands run in order, until one fails.
	commands []command
}

// command is a process that a step starts in the module's root.
type command struct {
	env  []string // in addition to the environment
	args []string
	// tests is set for a `go test`, whose events are read.
	tests bool
}

// build are the flags of everything that is compiled, the same as in hack/build-tools.sh, so that
// each package is compiled once for tools, tests and linters.
var build = []string{"-trimpath", "-buildvcs=false"}

func run(args ...string) command { return command{args: args} }

// goTest does not vet: vet is a step, which covers every package.
func goTest(args ...string) command {
	return command{tests: true, args: slices.Concat([]string{"go", "test", "-json"}, build, []string{"-vet=off"}, args)}
}

// fresh is goTest without cached results, for tests that start processes.
func fresh(args ...string) command { return goTest(append([]string{"-count=1", "-p=1"}, args...)...) }

func goRun(folder string, args ...string) command {
	return command{args: slices.Concat([]string{"go", "run"}, build, []string{folder}, args)}
}

// pattern returns the regular expression of the tests that the command runs; empty for all.
func (c command) pattern() string {
	pattern := ""
	for i, arg := range c.args {
		if value, ok := strings.CutPrefix(arg, "-run="); ok {
			pattern = value
		} else if arg == "-run" && i+1 < len(c.args) {
			pattern = c.args[i+1]
		}
	}
	return pattern
}

// program returns what is run: the first argument after "nice" or "env" and their options.
func (c command) program() string {
	args := c.args
	for len(args) > 3 && (args[0] == "nice" || args[0] == "env") {
		args = args[3:]
	}
	return args[0]
}

func (c command) with(env ...string) command {
	c.env = append(slices.Clone(c.env), env...)
	return c
}

// fits reports whether the step may run beside one that waits.
func (s step) fits() bool { return s.computes || s.light }

// mixes reports whether the step may run beside another.
func (s step) mixes() bool { return s.waits || s.fits() }

// low returns the step with a low priority.
func (s step) low() step {
	s.commands = slices.Clone(s.commands)
	for i := range s.commands {
		s.commands[i].args = append([]string{"nice", "-n", "19"}, s.commands[i].args...)
	}
	return s
}

// with returns the step with more arguments for its last command.
func (s step) with(args []string) step {
	s.commands = slices.Clone(s.commands)
	last := &s.commands[len(s.commands)-1]
	last.args = slices.Concat(last.args, args)
	return s
}

// find returns the steps of these names, in any set or in none.
func find(names []string) ([]step, error) {
	var found []step
	for _, name := range names {
		i := slices.IndexFunc(all(), func(s step) bool { return s.name == name })
		if slices.ContainsFunc(found, func(s step) bool { return s.name == name }) {
			return nil, fmt.Errorf("step %q is named twice: the second would share the log and the folders of the first", name)
		}
		if i < 0 {
			return nil, fmt.Errorf("there is no step %q; there are: %s", name, strings.Join(allNames(), " "))
		}
		found = append(found, all()[i])
	}
	return found, nil
}

// all returns every step once: of steps with the same name in several sets, that of the largest.
func all() []step {
	var steps []step
	for _, s := range slices.Concat(testAll(), more(), test(), check()) {
		if !slices.ContainsFunc(steps, func(other step) bool { return other.name == s.name }) {
			steps = append(steps, s)
		}
	}
	return steps
}

func allNames() []string {
	var names []string
	for _, s := range all() {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}
