package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func addFile(command *cobra.Command, file *string) {
	command.Flags().StringVarP(file, "filename", "f", "", "The edited plan, as 'flotilla plan show -o document' prints it; - for the standard input.")
}

// maxDocument is far more than fits on a Lease.
const maxDocument = 4 << 20

// readDocument reads a plan from the file that a flag names.
func readDocument(flag, file string, in io.Reader) (shard.Plan, error) {
	name := fmt.Sprintf("%s %q", flag, file)
	switch file {
	case "":
		return shard.Plan{}, errors.New(`--filename "": must be the file with the edited plan, or - for the standard input`)
	case "-":
		name = "standard input"
	default:
		f, err := os.Open(file)
		if err != nil {
			return shard.Plan{}, fmt.Errorf("%s: %w", name, err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return shard.Plan{}, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxDocument {
		return shard.Plan{}, fmt.Errorf("%s: must have at most %d bytes", name, maxDocument)
	}
	plan, err := ParseDocument(text)
	if err != nil {
		return shard.Plan{}, fmt.Errorf("%s: must be a plan as 'flotilla plan show -o document' prints it: %w", name, err)
	}
	return plan, nil
}
