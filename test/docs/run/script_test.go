package run

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

// bash runs a script. It calls do for stand-ins, one at a time.
func bash(ctx context.Context, text string, dir string, env []string, output io.Writer, do func(name string) error) error {
	path, err := exec.LookPath("bash")
	if err != nil {
		return fmt.Errorf("the pages' commands are for bash: %w", err)
	}
	asked, askWriter, err := os.Pipe()
	if err != nil {
		return err
	}
	answerReader, answers, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, "-c", text)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{askWriter, answerReader}
	err = cmd.Start()
	_, _ = askWriter.Close(), answerReader.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(asked); lines.Scan(); {
			answer := "ok"
			if err := do(lines.Text()); err != nil {
				answer = strings.ReplaceAll(err.Error(), "\n", " ")
			}
			fmt.Fprintln(answers, answer)
		}
	}()
	if err == nil {
		err = cmd.Wait()
	}
	_, _ = answers.Close(), asked.Close()
	<-done
	return err
}

// TestScriptSaysWhereItFailed plants failures in a page.
func TestScriptSaysWhereItFailed(t *testing.T) {
	tests := []struct{ text, want string }{
		{"```sh\necho one\n```\n\n```sh\ntrue\nfalse\necho two\n```\n", "docs/a.md:5 failed with status 1: false"},
		{"```sh\necho one\necho $nothing\n```\n", "docs/a.md:1 failed"},
		{"```sh\nfalse | cat\n```\n", "docs/a.md:1 failed"},
		{"```sh\nx=$(exit 3)\n```\n", "docs/a.md:1 failed with status 3"},
		{"```sh kubeadm nobody\n```\n", "stand-in nobody: there is none"},
		{"```sh\necho one\n```\n```sh kubeadm good\nfalse\n```\n```sh kubeadm other\nfalse\n```\n```sh\necho two\n```\n```sh not-run\nfalse\n```\n", ""},
	}
	for _, tc := range tests {
		p, err := markdown.Parse("docs/a.md", tc.text)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := script([]markdown.Page{p}, []markdown.Part{{Page: "docs/a.md"}}, []string{"good", "nobody"})
		var output bytes.Buffer
		err = bash(t.Context(), text, t.TempDir(), os.Environ(), &output, func(name string) error {
			if name == "good" {
				return nil
			}
			return errors.New("there is none")
		})
		if failed := err != nil; failed != (tc.want != "") || !strings.Contains(output.String(), tc.want) {
			t.Errorf("%q: %v, want an error with %q; the output:\n%s", tc.text, err, tc.want, output.String())
		}
	}
}
