package kubelet

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// childVariable makes this test binary run as a container's process.
const childVariable = "KUBELET_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childVariable); mode != "" {
		os.Exit(child(mode))
	}
	os.Exit(m.Run())
}

// sight is what a container sees.
type sight struct {
	Args     []string
	UID, GID int
	Groups   []int
	Env      map[string]string
	// Files are the contents of readable files by path, without executables. Modes are the files'
	// modes.
	Files, Modes map[string]string
	// Writable are the folders that the container can write to.
	Writable []string
}

// child serves on the pod's address until it gets SIGTERM. In mode stubborn it ignores the signal.
func child(mode string) int {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	var sick, unready atomic.Bool
	answer := func(bad *atomic.Bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if bad.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /alive", answer(&sick))
	mux.HandleFunc("GET /ready", answer(&unready))
	mux.HandleFunc("POST /sick", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	mux.HandleFunc("POST /unready", func(http.ResponseWriter, *http.Request) { unready.Store(true) })
	mux.HandleFunc("POST /die", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	mux.HandleFunc("GET /sight", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(look()) })
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(os.Getenv("IP")+":8080", mux) }()
	for {
		select {
		case <-failed:
			return 1
		case <-end:
			if mode != "stubborn" {
				return 0
			}
		}
	}
}

func look() sight {
	s := sight{Args: os.Args, UID: os.Getuid(), GID: os.Getgid(), Env: map[string]string{}, Files: map[string]string{}, Modes: map[string]string{}}
	s.Groups, _ = os.Getgroups()
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		s.Env[name] = value
	}
	_ = filepath.WalkDir("/", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if path == os.Getenv("XDG_CACHE_HOME") {
			return filepath.SkipDir
		}
		if entry.IsDir() {
			probe := filepath.Join(path, "probe")
			if os.WriteFile(probe, nil, 0o600) == nil {
				_ = os.Remove(probe)
				s.Writable = append(s.Writable, path)
			}
			return nil
		}
		if info, err := entry.Info(); err == nil {
			s.Modes[path] = info.Mode().String()
			if content, err := os.ReadFile(path); err == nil && info.Mode()&0o111 == 0 {
				s.Files[path] = string(content)
			}
		}
		return nil
	})
	return s
}
