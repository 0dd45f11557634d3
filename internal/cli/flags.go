package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	defaultFleet   = "flotilla"
	defaultTimeout = 30 * time.Second
	maxTimeout     = time.Hour
	defaultWait    = 2 * time.Minute
	maxWait        = 24 * time.Hour
)

// Config is what the build gives the commands.
type Config struct {
	// Check returns why this build could not work by a valid plan. Required.
	Check func(shard.Plan) error
	// Identities names the controllers that use each identity of this build's controllers, for
	// 'flotilla audit'. Default: none are known, and it does not judge which controller wrote.
	Identities map[string][]string
	// Deciding returns the controllers that decide over objects of a resource, by their names in
	// the plan, for 'flotilla explain'. Default: none are known, and it explains only the object's
	// namespace.
	Deciding func(resource schema.GroupResource, namespaced bool, plan shard.Plan) []string
	// Limits are the planner's. Default: shard.DefaultLimits().
	Limits shard.Limits
	// Connect returns a client of the cluster that the flags mean. Default: by kubeconfig.
	Connect func(Target) (kubernetes.Interface, error)
	// Clock is for ages and for waiting. Default: the real one.
	Clock clock.WithTicker
	// Interrupt returns a context that ends when the user stops --watch. Default: by SIGINT or
	// SIGTERM.
	Interrupt func(context.Context) (context.Context, context.CancelFunc)
}

func (c Config) complete() Config {
	if c.Limits == (shard.Limits{}) {
		c.Limits = shard.DefaultLimits()
	}
	if c.Connect == nil {
		c.Connect = connect
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Interrupt == nil {
		c.Interrupt = func(ctx context.Context) (context.Context, context.CancelFunc) {
			return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		}
	}
	return c
}

// Target says which fleet of which cluster is meant.
type Target struct {
	// Kubeconfig is a file; empty for KUBECONFIG, ~/.kube/config, or the pod's own credentials.
	// Context is one in it; empty for the current one.
	Kubeconfig, Context string
	// Overrides are kubectl's other flags, which override the kubeconfig. Its fields for context,
	// namespace and timeout are not used.
	Overrides clientcmd.ConfigOverrides
	// Fleet is the fleet's name, Namespace that of its Leases.
	Fleet, Namespace string
	// Timeout is for each command without its waiting; over 0 to one hour.
	Timeout time.Duration

	// namespace is --namespace: the namespace of an object if objects is set, and otherwise another
	// name for Namespace.
	namespace string
	objects   bool
	given     func(flag string) bool // reports whether a flag was given; nil for none
}

func (t *Target) addFlags(command *cobra.Command) {
	fs := command.Flags()
	fs.StringVar(&t.Kubeconfig, "kubeconfig", "", "The kubeconfig file. Default: what KUBECONFIG names, else ~/.kube/config, else the credentials of the pod this runs in.")
	fs.StringVar(&t.Context, "context", "", "The context of the kubeconfig. Default: its current one.")
	fs.StringVar(&t.Fleet, "fleet-name", defaultFleet, "The fleet, as its members have it.")
	fs.StringVar(&t.Namespace, "leader-elect-resource-namespace", metav1.NamespaceSystem, "The namespace of the fleet's Leases, as its members have it.")
	fs.StringVarP(&t.namespace, "namespace", "n", "", "The same as --leader-elect-resource-namespace.")
	fs.DurationVar(&t.Timeout, "request-timeout", defaultTimeout, "How long the API server may take, for all requests of the command but those of --wait.")
	// kubectl's, in its words, except those above.
	flags := clientcmd.RecommendedConfigOverrideFlags("")
	flags.CurrentContext, flags.Timeout, flags.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	flags.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(&t.Overrides, fs, flags)
	t.given = fs.Changed
}

// ofObjects makes --namespace the namespace of a command's objects, instead of the Leases'.
func (t *Target) ofObjects(command *cobra.Command) {
	t.objects = true
	command.Flags().Lookup("namespace").Usage = `The namespace of the object. Default: that of the kubeconfig's context, else "default".`
}

// within runs f within the time for requests.
func (t *Target) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	err := f(ctx)
	if waited := (waitedError{}); errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &waited) {
		err = fmt.Errorf("--request-timeout %v has passed: %w", t.Timeout, err)
	}
	return err
}

func (t *Target) validate() error {
	var faults []error
	if t.namespace != "" && !t.objects {
		if t.given("leader-elect-resource-namespace") && t.Namespace != t.namespace {
			faults = append(faults, fmt.Errorf("--namespace %q: must be the same as --leader-elect-resource-namespace %q, if both are given", t.namespace, t.Namespace))
		}
		t.Namespace = t.namespace
	}
	if !isLabel(t.Fleet) {
		faults = append(faults, fmt.Errorf("--fleet-name %q: must be %s", t.Fleet, aLabel))
	}
	if !isLabel(t.Namespace) {
		faults = append(faults, fmt.Errorf("--leader-elect-resource-namespace %q: must be the name of a namespace, %s", t.Namespace, aLabel))
	}
	if t.Timeout <= 0 || t.Timeout > maxTimeout {
		faults = append(faults, fmt.Errorf("--request-timeout %v: must be over 0s, up to %v", t.Timeout, maxTimeout))
	}
	return errors.Join(faults...)
}

// aLabel says what isLabel allows.
const aLabel = "a DNS label: up to 63 lower-case letters, digits and hyphens, none of these first or last"

func isLabel(text string) bool { return len(validation.IsDNS1123Label(text)) == 0 }

// loader reads the kubeconfig when it is first used.
func (t *Target) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.Kubeconfig
	overrides := t.Overrides
	overrides.CurrentContext = t.Context
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides)
}

// objectNamespace returns the namespace of an object: the one that was given, or that of the
// kubeconfig's context.
func (t *Target) objectNamespace() (string, error) {
	given := t.namespace
	if given == "" {
		namespace, _, err := t.loader().Namespace()
		if clientcmd.IsEmptyConfig(err) {
			namespace, err = metav1.NamespaceDefault, nil
		}
		if err != nil {
			return "", fmt.Errorf("--kubeconfig %q, --context %q: %w", cmp.Or(t.Kubeconfig, "(default)"), t.Context, err)
		}
		given = namespace
	}
	if !isLabel(given) {
		return "", fmt.Errorf("--namespace %q: must be the name of a namespace, %s", given, aLabel)
	}
	return given, nil
}

// connect connects to the cluster that kubectl would, by the same flags.
func connect(t Target) (kubernetes.Interface, error) {
	config, err := t.loader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: give --kubeconfig a file, or set KUBECONFIG, or write ~/.kube/config, or run in a pod")
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q, --context %q: %w", cmp.Or(t.Kubeconfig, "(default)"), t.Context, err)
	}
	t.impersonate(config)
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "flotilla-cli"))
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q, --context %q: %w", cmp.Or(t.Kubeconfig, "(default)"), t.Context, err)
	}
	return client, nil
}

// impersonate makes requests as another user, if flags say so. client-go leaves that out if the
// credentials are a pod's own: the command would act with all of the pod's rights.
func (t *Target) impersonate(config *rest.Config) {
	if as := t.Overrides.AuthInfo; as.Impersonate != "" || as.ImpersonateUID != "" || len(as.ImpersonateGroups) > 0 {
		config.Impersonate.UserName, config.Impersonate.UID, config.Impersonate.Groups = as.Impersonate, as.ImpersonateUID, as.ImpersonateGroups
	}
}

// form is the value of -o.
type form struct {
	value   string
	allowed []string
}

// addListFlag adds the flag to a command that lists something.
func (f *form) addListFlag(command *cobra.Command, more ...string) {
	f.addFlag(command, append([]string{formWide, formName, formPath}, more...)...)
}

func (f *form) addFlag(command *cobra.Command, more ...string) {
	f.allowed = append([]string{formTable, formJSON, formYAML}, more...)
	command.Flags().StringVarP(&f.value, "output", "o", formTable, "The form of the output: "+strings.Join(f.allowed, ", ")+".")
	_ = command.RegisterFlagCompletionFunc("output", completeOutput(f)) // only for an unknown flag
}

func (f *form) validate() error {
	if template, is := strings.CutPrefix(f.value, formJSONPath); is && slices.Contains(f.allowed, formPath) {
		_, err := parsePath(template)
		return err
	}
	if !slices.Contains(f.allowed, f.value) {
		return fmt.Errorf("--output %q: must be one of %s", f.value, strings.Join(f.allowed, ", "))
	}
	return nil
}

// open returns the connection that the flags ask for. It connects when it first reads.
func (c Config) open(t Target) (*connection, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	return &connection{target: t, connect: c.Connect, clock: c.Clock}, nil
}
