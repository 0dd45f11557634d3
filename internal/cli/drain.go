package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

func (c Config) drainCommand() *cobra.Command {
	var dryRun, force, wait bool
	var timeout time.Duration
	command, target := c.newCommand("drain MEMBER", "Make a member hand over its shards, and give it no others",
		`Drains a member: it stays alive and ready, hands over its shards to the other members one
by one as in any planned move, and gets no others until 'flotilla undrain'. It stays so
when it is started anew under the same name.

The last member of another version than a canary's is not drained, unless with --force:
everything would go to the version on trial. Nor is any while the plan cannot be read, or the last
that serves a ring; and it goes on serving the ring then, since a shard with an owner is worth more
than what was asked for.`,
		oneMember, nil)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("timeout") && (timeout <= 0 || timeout > maxWait) {
			return fmt.Errorf("--timeout=%v: must be over 0s, up to %v", timeout, maxWait)
		}
		conn, err := c.open(*target)
		if err != nil {
			return err
		}
		var d draining
		if err := target.within(cmd.Context(), func(ctx context.Context) error {
			d, err = conn.drain(ctx, args[0], force, dryRun)
			return err
		}); err != nil {
			return err
		}
		d.tell(cmd, dryRun)
		switch {
		case dryRun || !wait || d.held == 0 || force && len(d.keeps) > 0:
			return nil
		case len(d.keeps) > 0:
			return fmt.Errorf("member %s is the last that serves ring %s and is not empty: start or undrain another, or give --force to be content with that", args[0], strings.Join(d.keeps, ", "))
		}
		began := conn.clock.Now()
		progress := func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "Waiting: %s\n", text) }
		if err := conn.wait(cmd.Context(), empty(args[0]), timeout, progress); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Member %s holds no shards, after %v\n", args[0], conn.clock.Since(began).Round(100*time.Millisecond))
		return nil
	}
	fs := command.Flags()
	fs.BoolVar(&dryRun, "dry-run", false, "Check and show everything, and write nothing.")
	fs.BoolVar(&force, "force", false, "Drain the member even if it is the last that serves a ring, does not live, or the plan cannot be read.")
	fs.BoolVar(&wait, "wait", true, "Wait until the member holds no shards.")
	fs.DurationVar(&timeout, "timeout", defaultWait, "How long to wait at most. The member stays drained even if the wait times out.")
	command.ValidArgsFunction = c.completeMembers(target)
	return command
}

func (c Config) undrainCommand() *cobra.Command {
	var dryRun bool
	command, target := c.newCommand("undrain MEMBER", "Give a drained member shards again",
		`Takes back what 'flotilla drain' has asked for: the member gets its share of the shards
again, by handoffs.`,
		oneMember, func(ctx context.Context, cmd *cobra.Command, conn *connection, args []string) error {
			changed, err := conn.undrain(ctx, args[0], dryRun)
			switch {
			case err != nil:
				return err
			case !changed:
				fmt.Fprintf(cmd.OutOrStdout(), "Member %s is not drained\n", args[0])
			case dryRun:
				fmt.Fprintf(cmd.OutOrStdout(), "Dry run: member %s would be undrained\n", args[0])
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "Member %s is undrained, and will be handed shards\n", args[0])
			}
			return nil
		})
	command.Flags().BoolVar(&dryRun, "dry-run", false, "Check and show everything, and write nothing.")
	command.ValidArgsFunction = c.completeMembers(target)
	return command
}

func oneMember(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes one MEMBER, got %q", cmd.CommandPath(), args)
	}
	return nil
}

// draining is the effect of a drain.
type draining struct {
	member string
	// state is the member's, as in MemberView; held is how many shards it holds.
	state string
	held  int
	// already is the time since which it is drained, if it was drained before.
	already string
	// others has, for each ring that the member serves, the members that will get its shards; keeps
	// are the rings without any.
	others map[string][]string
	keeps  []string
}

func (d draining) tell(cmd *cobra.Command, dryRun bool) {
	out := cmd.OutOrStdout()
	switch {
	case d.already != "":
		fmt.Fprintf(out, "Member %s is drained already, since %s\n", d.member, status.Plain(d.already))
	case dryRun:
		fmt.Fprintf(out, "Dry run: member %s would be drained\n", d.member)
	default:
		fmt.Fprintf(out, "Member %s is drained\n", d.member)
	}
	if d.state == "gone" || d.state == "silent" {
		fmt.Fprintf(out, "It is %s: it will get no shards when it comes back\n", d.state)
		return
	}
	for _, ring := range sortedKeys(d.others) {
		fmt.Fprintf(out, "Its shards of ring %s go to %s\n", ring, some(d.others[ring]))
	}
	if len(d.keeps) > 0 {
		fmt.Fprintf(out, "It is the last that serves ring %s, and keeps those shards\n", strings.Join(d.keeps, ", "))
	}
	fmt.Fprintf(out, "It holds %s\n", status.Plural(d.held, "shard"))
}

// drainOf computes the effect of draining the member. The error says why it must not be drained.
func drainOf(r *status.Reading, name string, force bool) (draining, error) {
	lease, err := memberLease(r, name)
	if err != nil {
		return draining{}, err
	}
	d := draining{member: name, held: heldBy(r, name), already: lease.Annotations[leaseapi.DrainAnnotation], others: map[string][]string{}}
	for _, m := range status.Members(r) {
		if m.Name == name {
			d.state = m.State
		}
	}
	if d.state == "gone" || d.state == "silent" {
		if d.already == "" && !force {
			return d, fmt.Errorf("member %s is %s: --force drains it all the same, so that it gets no shards when it comes back", name, d.state)
		}
		return d, nil
	}
	if r.Fault != nil && d.already == "" && !force {
		return d, fmt.Errorf("nothing tells who would get the shards of member %s: %w; correct the plan first, or give --force", name, r.Problem())
	}
	member, _ := r.Roster.Get(name)
	var toTried []string
	for _, ring := range r.Plan.Rings {
		if len(leaseapi.ServersOf([]membership.Member{member}, ring.Name)) == 0 {
			continue
		}
		rest := slices.DeleteFunc(r.Roster.Members(), func(m membership.Member) bool {
			return m.Name == name || m.State == membership.Leaving || leaseapi.IsDrained(m) || leaseapi.RefusesPlan(m, r.Plan.Generation)
		})
		others := leaseapi.ServersOf(rest, ring.Name)
		if len(others) == 0 {
			d.keeps = append(d.keeps, ring.Name)
			continue
		}
		if !r.IsTried(member) {
			// Shards outside of the canary go to its version only if nobody else is left.
			untried := leaseapi.ServersOf(slices.DeleteFunc(rest, r.IsTried), ring.Name)
			if len(untried) == 0 {
				toTried = append(toTried, ring.Name)
			} else {
				others = untried
			}
		}
		d.others[ring.Name] = others
	}
	if len(toTried) > 0 && d.already == "" && !force {
		return d, fmt.Errorf("member %s is the last of another version than the canary's, %s, that serves ring %s: members of that version would get everything; "+
			"start or undrain another first, promote or forget the canary, or give --force", name, status.Plain(r.Plan.Canary.Version), strings.Join(toTried, ", "))
	}
	if len(d.keeps) > 0 && d.already == "" && !force {
		return d, fmt.Errorf("member %s is the last that serves ring %s: the others are drained, are leaving, refuse the plan, or serve other rings; "+
			"start or undrain another first, or give --force: it is marked then, and keeps those shards until there is another", name, strings.Join(d.keeps, ", "))
	}
	return d, nil
}

// memberLease returns the Lease of a member. The error names the existing members.
func memberLease(r *status.Reading, name string) (*coordinationv1.Lease, error) {
	if name != "" && isMember(r, name) {
		return r.Lease(leaserecord.MemberLease(r.Fleet, name)).Lease, nil
	}
	var names []string
	for _, m := range status.Members(r) {
		if m.State != "gone" {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("MEMBER %q: fleet %q has no live members", name, r.Fleet)
	}
	return nil, fmt.Errorf("MEMBER %q: must be a member of fleet %q: %s", name, r.Fleet, status.Plain(strings.Join(names, ", ")))
}

func isMember(r *status.Reading, name string) bool {
	return slices.ContainsFunc(status.Members(r), func(m status.MemberView) bool { return m.Name == name })
}

// heldBy returns how many shards a member holds, of any plan.
func heldBy(r *status.Reading, name string) int {
	for _, m := range status.Members(r) {
		if m.Name == name {
			return m.Shards
		}
	}
	return 0
}

// setDrain writes the annotation on the member's Lease; empty removes it.
func (c *connection) setDrain(ctx context.Context, name, value string, decide func(*status.Reading) (bool, error)) error {
	return c.annotate(ctx, leaserecord.MemberLease(c.target.Fleet, name), leaseapi.DrainAnnotation, value, decide)
}

// annotate writes an annotation on a Lease; an empty value removes it. It calls decide with every
// reading that it computes a write from; decide reports whether there is anything to write, and
// then the Lease must exist. Holders renew every other second, so conflicts are ordinary.
func (c *connection) annotate(ctx context.Context, name, key, value string, decide func(*status.Reading) (bool, error)) error {
	return c.settle(ctx, func(r *status.Reading) (func() error, error) {
		wanted, err := decide(r)
		if err != nil || !wanted {
			return nil, err
		}
		lease := r.Lease(name).Lease.DeepCopy()
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		if lease.Annotations[key] = value; value == "" {
			delete(lease.Annotations, key)
		}
		return func() error {
			if _, err := c.leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("writing Lease %s in namespace %s: %w", lease.Name, c.target.Namespace, err)
			}
			return nil
		}, nil
	}, func(r *status.Reading) bool {
		there := r.Lease(name)
		return there.Exists && there.Annotations[key] == value
	})
}

func (c *connection) drain(ctx context.Context, name string, force, dryRun bool) (draining, error) {
	var d draining
	err := c.setDrain(ctx, name, c.clock.Now().UTC().Format(time.RFC3339), func(r *status.Reading) (bool, error) {
		var err error
		d, err = drainOf(r, name, force)
		return d.already == "" && !dryRun, err
	})
	return d, err
}

func (c *connection) undrain(ctx context.Context, name string, dryRun bool) (changed bool, err error) {
	err = c.setDrain(ctx, name, "", func(r *status.Reading) (bool, error) {
		lease, err := memberLease(r, name)
		if err != nil {
			return false, err
		}
		changed = lease.Annotations[leaseapi.DrainAnnotation] != ""
		return changed && !dryRun, nil
	})
	return changed, err
}

// empty waits until the member holds no shards.
func empty(member string) waiting {
	return waiting{
		what:    fmt.Sprintf("member %s, which stays drained", member),
		missing: func(r *status.Reading) error { return emptied(r, member) },
	}
}

// emptied returns nil if the member holds no shards, and otherwise how many; it wraps errNever if
// waiting cannot help.
func emptied(r *status.Reading, name string) error {
	lease, err := memberLease(r, name)
	if err != nil {
		return err
	}
	held := heldBy(r, name)
	switch {
	case held == 0:
		return nil
	case lease.Annotations[leaseapi.DrainAnnotation] == "":
		return fmt.Errorf("%w for member %s: somebody has undrained it", errNever, name)
	}
	return fmt.Errorf("member %s holds %s", name, status.Plural(held, "shard"))
}
