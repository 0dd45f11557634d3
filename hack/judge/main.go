// Command judge reads the audit log of an API server and says whether a fleet kept its promises: whether every write was
// made by the holder of its shard, how long shards went without one, and whether anything was made twice or deleted
// while it was wanted. The rules are those of package test/audit.
//
//	go run ./hack/judge [-fleet flotilla] [-plan plan.json] [-o text|json] audit.log...
//
// Several files are parts of one log. The plan is the one that the fleet began with; those that came after it are in the log.
// Without a plan the first one is read from the log, too, which is weaker: see audit.ReadPlan. The exit code is 0 if nothing was wrong, 1 if something was, and 2 if that cannot be said.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/audit"
)

// Exit codes.
const (
	clean = iota
	violated
	undecided
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program with its arguments and outputs; it returns the exit code.
func run(args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("judge", flag.ContinueOnError)
	flags.SetOutput(errOut)
	fleetName := flags.String("fleet", "flotilla", "name of the fleet")
	planFile := flags.String("plan", "", "file with the first plan as JSON; without it the plan is read from the Leases in the log")
	format := flags.String("o", "text", "what to print: text or json")
	if err := flags.Parse(args); err != nil {
		return undecided
	}
	report, err := judge(*fleetName, *planFile, flags.Args())
	if err != nil {
		fmt.Fprintln(errOut, "judge:", err)
		return undecided
	}
	verdict := report.Verdict()
	if err := write(out, verdict, *format); err != nil {
		fmt.Fprintln(errOut, "judge:", err)
		return undecided
	}
	switch {
	case !verdict.Clean:
		return violated
	case verdict.Judged == 0:
		fmt.Fprintln(errOut, "judge: the fleet wrote nothing, which proves nothing")
		return undecided
	default:
		return clean
	}
}

func judge(fleetName, planFile string, files []string) (audit.Report, error) {
	if len(files) == 0 {
		return audit.Report{}, errors.New("no audit log was given")
	}
	plan, err := readPlan(fleetName, planFile, files)
	if err != nil {
		return audit.Report{}, err
	}
	logs, closeAll, err := open(files)
	if err != nil {
		return audit.Report{}, err
	}
	defer closeAll()
	return audit.Check(fleetName, plan, logs...)
}

func readPlan(fleetName, planFile string, files []string) (shard.Plan, error) {
	if planFile == "" {
		logs, closeAll, err := open(files)
		if err != nil {
			return shard.Plan{}, err
		}
		defer closeAll()
		return audit.ReadPlan(fleetName, logs...)
	}
	data, err := os.ReadFile(planFile)
	if err != nil {
		return shard.Plan{}, err
	}
	var plan shard.Plan
	if err := json.Unmarshal(data, &plan); err != nil {
		return shard.Plan{}, fmt.Errorf("%s: %w", planFile, err)
	}
	return plan, nil
}

func open(files []string) (logs []io.Reader, closeAll func(), err error) {
	var opened []*os.File
	closeAll = func() {
		for _, file := range opened {
			file.Close()
		}
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		opened, logs = append(opened, file), append(logs, file)
	}
	return logs, closeAll, nil
}

func write(out io.Writer, verdict audit.Verdict, format string) error {
	switch format {
	case "text":
		return verdict.WriteText(out)
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(verdict)
	default:
		return fmt.Errorf("-o %q must be text or json", format)
	}
}
