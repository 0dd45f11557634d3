package cli

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// formText is the form of a verdict for people.
const formText = "text"

// maxServerTimeout is longer than any API server's request timeout.
const maxServerTimeout = 24 * time.Hour

type auditFlags struct {
	target         Target // fleet and namespace alone
	plan, output   string
	requestTimeout time.Duration
}

func (c Config) auditCommand() *cobra.Command {
	var f auditFlags
	command := &cobra.Command{
		Use:   "audit FILE...",
		Short: "Check an API server's audit log for broken promises",
		Long: `Judges a fleet by the audit log of the API server: whether every write was made by the
holder of the shard's Lease, within the shard's range, and not while another shard that
covers the same was worked; how long shards went without a holder; and whether anything
was made twice, or deleted while it was wanted. It needs no connection to a cluster.

The files are parts of one log, in any order, such as those of a log that was rotated;
those that gzip has packed are unpacked; - is the standard input. Writes must be in the
log, those of Leases at level RequestResponse: see deploy/audit.

The status is 0 if nothing is wrong, 1 if the log cannot be read, 2 if there are
violations, and 3 if there are none but something is undecided, or there was nothing to
judge.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("FILE: must be one or more audit logs, or - for the standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.audit(cmd, f, args) },
	}
	fs := command.Flags()
	fs.StringVar(&f.target.Fleet, "fleet-name", defaultFleet, "The fleet, as its members have it.")
	fs.StringVar(&f.target.Namespace, "leader-elect-resource-namespace", metav1.NamespaceSystem, "The namespace of the fleet's Leases, as its members have it.")
	fs.StringVar(&f.plan, "plan", "", "A file with the plan at the beginning of the log, as 'flotilla plan show -o document' prints it. Default: the first one in the log.")
	fs.DurationVar(&f.requestTimeout, "server-request-timeout", audit.DefaultRequestTimeout, "The API server's --request-timeout.")
	fs.StringVarP(&f.output, "output", "o", formText, "The form of the output: text, json.")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formText, formJSON}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (f auditFlags) validate() error {
	f.target.Timeout = defaultTimeout
	errs := []error{f.target.validate()}
	if f.requestTimeout <= 0 || f.requestTimeout > maxServerTimeout {
		errs = append(errs, fmt.Errorf("--server-request-timeout %v: must be over 0s, up to %v", f.requestTimeout, maxServerTimeout))
	}
	if !slices.Contains([]string{formText, formJSON}, f.output) {
		errs = append(errs, fmt.Errorf("--output %q: must be one of text, json", f.output))
	}
	return errors.Join(errs...)
}

func (c Config) audit(cmd *cobra.Command, f auditFlags, files []string) error {
	if err := f.validate(); err != nil {
		return err
	}
	opts := audit.Options{Fleet: f.target.Fleet, Namespace: f.target.Namespace, RequestTimeout: f.requestTimeout, Controllers: c.Identities}
	if f.plan == "-" && slices.Contains(files, "-") {
		return errors.New("--plan -: must not be given with the FILE -, since the standard input is one of them")
	}
	if f.plan != "" {
		plan, err := readDocument("--plan", f.plan, cmd.InOrStdin())
		if err != nil {
			return err
		}
		opts.Plan = &plan
	}
	logs, closeAll, err := openLogs(files, cmd.InOrStdin())
	defer closeAll()
	if err != nil {
		return err
	}
	report, err := audit.Judge(opts, logs...)
	if err != nil {
		return err
	}
	v := report.Verdict()
	if f.output == formJSON {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		err = encoder.Encode(v)
	} else {
		err = v.WriteText(cmd.OutOrStdout())
	}
	switch {
	case !v.Clean:
		setExitStatus(cmd, status.Error)
	case report.Undisturbed() != nil || v.Judged == 0:
		setExitStatus(cmd, status.Warning)
	}
	return err
}

// openLogs opens files, which may be compressed. Close those that were opened even after an error.
func openLogs(files []string, in io.Reader) (logs []audit.Log, closeAll func(), err error) {
	var opened []io.Closer
	closeAll = func() {
		for _, file := range opened {
			_ = file.Close() // nothing was written
		}
	}
	seen := map[string]bool{}
	for _, name := range files {
		if seen[name] {
			return nil, closeAll, fmt.Errorf("FILE %q: must be given once", name)
		}
		seen[name] = true
		from := in
		if name != "-" {
			file, err := os.Open(name)
			if err != nil {
				return nil, closeAll, fmt.Errorf("FILE %q: %w", name, err)
			}
			opened, from = append(opened, file), file
		}
		text, err := unpacked(from)
		if err != nil {
			return nil, closeAll, fmt.Errorf("FILE %q: %w", name, err)
		}
		logs = append(logs, audit.Log{Name: cmp.Or(map[string]string{"-": "standard input"}[name], name), Reader: text})
	}
	return logs, closeAll, nil
}

// unpacked returns the decompressed data if the input begins like gzip, and everything else
// unchanged.
func unpacked(in io.Reader) (io.Reader, error) {
	reader := bufio.NewReader(in)
	if begins, err := reader.Peek(2); err != nil || begins[0] != 0x1f || begins[1] != 0x8b {
		if errors.Is(err, io.EOF) {
			err = nil // shorter than that
		}
		return reader, err
	}
	return gzip.NewReader(reader)
}
