package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/internal/status/page"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	defaultAddress = "127.0.0.1:0"
	// syncInterval is how often to check whether the Leases have been listed.
	syncInterval = 50 * time.Millisecond
	// headerTimeout is how long a browser may take to send its request's header.
	headerTimeout = 10 * time.Second
)

func (c Config) dashboardCommand() *cobra.Command {
	var address string
	var others bool
	command, target := c.newCommand("dashboard", "Serve the status page on this machine, from the Leases",
		`Serves the status page on this machine until it is interrupted, and says its URL. The page is
made of the Leases, which are listed once and watched, with the rights of the kubeconfig's
user: no member's port is asked, and none is forwarded.

Whoever reaches the port sees the page without any credentials. So it listens on a loopback
address alone, unless --allow-others is given.`,
		cobra.NoArgs, nil)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkAddress(address, others); err != nil {
			return err
		}
		conn, err := c.open(*target)
		if err != nil {
			return err
		}
		ctx, stop := c.Interrupt(cmd.Context())
		defer stop()
		return conn.serveDashboard(ctx, address, others, func(url string) {
			fmt.Fprintf(cmd.OutOrStdout(), "The status page of fleet %s is at %s\nEnd it with Ctrl-C\n", conn.target.Fleet, url)
		})
	}
	command.Flags().StringVar(&address, "address", defaultAddress, "The address and port to listen on; port 0 is any free one.")
	command.Flags().BoolVar(&others, "allow-others", false, "Allow an --address that other machines reach: they need no credentials to see the page.")
	return command
}

// checkAddress returns why the page should not be served at an address.
func checkAddress(address string, others bool) error {
	at, err := netip.ParseAddrPort(address)
	switch {
	case err != nil:
		return fmt.Errorf("--address %q: must be an IP address and a port, as %s is", address, defaultAddress)
	case !at.Addr().IsLoopback() && !others:
		return fmt.Errorf("--address %q: must be a loopback address, such as 127.0.0.1, unless --allow-others is given: anyone who can reach it sees the page", address)
	default:
		return nil
	}
}

// serveDashboard serves the page until ctx ends, and prints its address once there is something to
// see.
func (c *connection) serveDashboard(ctx context.Context, address string, others bool, say func(url string)) error {
	_, observer, err := c.observer(ctx)
	if err != nil || observer == nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--address %q: %w", address, err)
	}
	running, end := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	all.Go(func() { observer.Run(running) })
	if !c.awaitSync(ctx, observer) {
		_ = listener.Close()
		return nil
	}
	shown := page.New(page.Config{Fleet: c.target.Fleet, Version: version.Get().GitVersion})
	shown.Show(watched{fleet: c.target.Fleet, observer: observer, now: c.clock.Now}, nil)
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		shown.ServeHTTP(w, r)
	})
	if !others {
		handler = loopbackOnly(handler)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	all.Go(func() {
		<-running.Done()
		_ = server.Close()
	})
	say("http://" + listener.Addr().String() + "/")
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the page: %w", err)
	}
	return nil
}

// awaitSync returns true once the observer has listed the Leases, or false if ctx ends first.
func (c *connection) awaitSync(ctx context.Context, observer *election.Observer) bool {
	ticker := c.clock.NewTicker(syncInterval)
	defer ticker.Stop()
	for !observer.HasSynced() {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// loopbackOnly refuses requests for any name other than this machine's own: otherwise a page on the
// web could let its name resolve to 127.0.0.1 and read the answers in the visitor's browser.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if at, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !at.IsLoopback()) {
			http.Error(w, "the page is served only to this machine: use the URL that the command printed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// watched is a page's source outside of any member, which knows only the Leases.
type watched struct {
	fleet    string
	observer *election.Observer
	now      func() time.Time
}

var _ page.Source = watched{}

// Incarnation implements page.Source.
func (watched) Incarnation() string { return "" }

// Observed implements page.Source.
func (s watched) Observed() ([]election.Observation, time.Time) { return s.observer.List(), s.now() }

// Plan implements page.Source.
func (s watched) Plan() (shard.Plan, bool) {
	plan, err := leaseapi.PlanOn(s.observer.Get(leaseapi.PlanLease(s.fleet)).Lease)
	return plan, err == nil
}

// Refused implements page.Source.
func (watched) Refused() error { return nil }

// Ready implements page.Source.
func (watched) Ready() error { return nil }

// Assignment implements page.Source.
func (s watched) Assignment() assignment.Assignment {
	leases, now := s.Observed()
	assigned, _ := status.Observed(s.fleet, leases, now).Assignment() // the zero one if there is none
	return assigned
}

// Journal implements page.Source.
func (watched) Journal() []fleet.JournalEntry { return nil }
