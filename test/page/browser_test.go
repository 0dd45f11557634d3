package page

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// names are what Chromium and its kin are called; the environment's CHROMIUM is asked first.
var names = []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"}

// findBrowser returns the path of the browser, empty if there is none.
func findBrowser() string {
	for _, name := range append([]string{os.Getenv("CHROMIUM")}, names...) {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// browser is a Chromium that is driven by the DevTools protocol, over a pair of pipes: messages as JSON, each ended by a zero
// byte. So it needs no port, and this test no websocket.
type browser struct {
	command *exec.Cmd
	to      io.WriteCloser
	session string

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
	// requests are the addresses that were asked for, complaints what went to the console, since forget was called.
	requests, complaints []string
	// loaded counts the pages that have been loaded; changed is closed and made anew when it changes, or the browser ends.
	loaded  int
	changed chan struct{}
	ended   bool
}

// message is what goes over the pipes.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// startBrowser starts a browser with one empty tab. It ends with the test.
func startBrowser(t *testing.T, path string) *browser {
	t.Helper()
	profile := t.TempDir()
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "browser.log"))
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{to: out, waiting: map[int]chan message{}, changed: make(chan struct{})}
	b.command = exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	b.command.ExtraFiles = []*os.File{in, theirs} // its descriptors 3 and 4
	b.command.Stdout, b.command.Stderr = log, log
	b.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.command.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{in, theirs, log} {
		_ = f.Close()
	}
	read := make(chan struct{})
	go func() { defer close(read); b.read(ours) }()
	t.Cleanup(func() {
		_ = out.Close() // which ends it
		timer := time.AfterFunc(patience, func() { _ = syscall.Kill(-b.command.Process.Pid, syscall.SIGKILL) })
		_ = b.command.Wait()
		timer.Stop()
		_ = syscall.Kill(-b.command.Process.Pid, syscall.SIGKILL) // what it may have left behind
		_ = ours.Close()
		<-read
	})
	var target struct{ TargetID string }
	b.call(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.call(t, domain+".enable", nil, nil)
	}
	return b
}

// read takes in what the browser says until it ends.
func (b *browser) read(from io.Reader) {
	reader := bufio.NewReader(from)
	for {
		text, err := reader.ReadBytes(0)
		if err != nil {
			break
		}
		var m struct {
			message
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if answer, ok := b.waiting[m.ID]; ok {
			delete(b.waiting, m.ID)
			answer <- m.message
		} else {
			b.note(m.Method, m.Params)
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for _, answer := range b.waiting {
		close(answer)
	}
	b.waiting = map[int]chan message{}
	close(b.changed)
	b.changed = make(chan struct{})
}

// note takes in an event.
func (b *browser) note(method string, params json.RawMessage) {
	switch method {
	case "Network.requestWillBeSent":
		var event struct{ Request struct{ URL string } }
		_ = json.Unmarshal(params, &event)
		b.requests = append(b.requests, event.Request.URL)
	case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
		b.complaints = append(b.complaints, method+" "+string(params))
	case "Page.loadEventFired":
		b.loaded++
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// call sends a command and reads its result.
func (b *browser) call(t *testing.T, method string, params, result any) {
	t.Helper()
	answer := make(chan message, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = answer
	text, err := json.Marshal(message{ID: id, SessionID: b.session, Method: method, Params: params})
	if err == nil && b.ended {
		err = errors.New("it has ended")
	}
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		t.Fatalf("browser: %s: %v", method, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			t.Fatalf("browser: %s: it has ended", method)
		case m.Error != nil:
			t.Fatalf("browser: %s: %s", method, m.Error.Message)
		case result != nil:
			if err := json.Unmarshal(m.Result, result); err != nil {
				t.Fatalf("browser: %s: %v", method, err)
			}
		}
	case <-ctx.Done():
		t.Fatalf("browser: %s: no answer within %v", method, patience)
	}
}

// open loads a page, waits for it, and forgets what was noted before.
func (b *browser) open(t *testing.T, url string) {
	t.Helper()
	b.mu.Lock()
	b.requests, b.complaints = nil, nil
	loaded, changed := b.loaded, b.changed
	b.mu.Unlock()
	var navigated struct{ ErrorText string }
	b.call(t, "Page.navigate", map[string]any{"url": url}, &navigated)
	if navigated.ErrorText != "" {
		t.Fatalf("browser: opening %s: %s", url, navigated.ErrorText)
	}
	b.waitFor(t, changed, func() bool { return b.loaded > loaded })
}

// waitFor waits until a condition on what was noted holds.
func (b *browser) waitFor(t *testing.T, changed <-chan struct{}, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		b.mu.Lock()
		done, ended := holds(), b.ended
		if !done {
			changed = b.changed
		}
		b.mu.Unlock()
		switch {
		case done:
			return
		case ended:
			t.Fatal("browser: it has ended")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("browser: the page was not loaded within %v", patience)
		}
	}
}

// noted returns the addresses that were asked for and what went to the console since the page was opened.
func (b *browser) noted() (requests, complaints []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.requests...), append([]string{}, b.complaints...)
}

// evaluate runs an expression in the page and reads its value.
func (b *browser) evaluate(t *testing.T, expression string, value any) {
	t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &result)
	if result.ExceptionDetails != nil {
		t.Fatalf("browser: %s: %s", expression, result.ExceptionDetails)
	}
	if err := json.Unmarshal(result.Result.Value, value); err != nil {
		t.Fatalf("browser: %s: %v", expression, err)
	}
}

// resize gives the page so much room.
func (b *browser) resize(t *testing.T, width, height int, mobile bool) {
	t.Helper()
	b.call(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}, nil)
}

// scheme has the page shown as light or dark.
func (b *browser) scheme(t *testing.T, scheme string) {
	t.Helper()
	b.call(t, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture writes the page, down to a height, as a PNG, and returns its size in bytes.
func (b *browser) picture(t *testing.T, file string, width, height int) int {
	t.Helper()
	var shot struct{ Data []byte }
	clip := map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
	b.call(t, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true, "clip": clip}, &shot)
	full, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		t.Fatal(err)
	}
	var small bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&small, reduced(full)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, small.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return small.Len()
}

// reduced returns the picture in its 256 most frequent colours, each other one as that which is nearest to it: a page has few
// besides the edges of its letters.
func reduced(full image.Image) *image.Paletted {
	count := map[color.RGBA]int{}
	bounds := full.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for _, c := range colours {
		index[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	return small
}
