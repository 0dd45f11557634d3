package deps

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// root is the module's directory, relative to this package's, where `go test` runs.
const root = "../.."

// module is the prefix of the project's own imports.
const module = "github.com/flotilla-kube/flotilla/"

// file is one parsed Go file.
type file struct {
	path string // relative to the root, with slashes
	fset *token.FileSet
	ast  *ast.File
}

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// at returns "path:line" for messages.
func (f file) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(pos).Line)
}

// parse parses one file; src is its text, or nil to read it from the root.
func parse(t *testing.T, name string, src any) file {
	t.Helper()
	parsed, err := parser.ParseFile(positions, filepath.Join(root, filepath.FromSlash(name)), src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return file{path: name, fset: positions, ast: parsed}
}

// positions are shared by all files, so that several can be checked together.
var positions = token.NewFileSet()

// sources returns every Go file of the module, whatever its build constraints. They are parsed once
// for all tests.
func sources(t *testing.T) []file {
	t.Helper()
	parsed.Do(func() { files = parseAll(t) })
	if len(files) < 50 {
		t.Fatalf("Only %d Go files found below %s: the rules read less than they should", len(files), root)
	}
	return files
}

var (
	parsed sync.Once
	files  []file
)

func parseAll(t *testing.T) []file {
	t.Helper()
	var all []file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skip(name, rel, entry)
		}
		if strings.HasSuffix(rel, ".go") {
			all = append(all, parse(t, filepath.ToSlash(rel), nil))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// skip skips what the go command skips, other modules, and build output.
func skip(name, rel string, entry fs.DirEntry) error {
	if rel == "." {
		return nil
	}
	base := entry.Name()
	if rel == "bin" || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}
