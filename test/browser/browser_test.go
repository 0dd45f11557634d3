package browser

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	shown "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/flotilla-kube/flotilla/test/harness"
)

const noBrowser = "no browser: how the status page looks was not checked; 'apt-get install chromium', or name one in $CHROMIUM"

// names are the names of Chromium and its relatives; $CHROMIUM comes first.
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

// browser is a tab of a Chromium that chromedp drives over a pair of pipes, without opening a port.
type browser struct {
	ctx context.Context

	mu sync.Mutex
	// requests are the requested addresses, complaints the console output, since the page was
	// opened.
	requests, complaints []string
}

// startBrowser starts a browser with one empty tab. It ends with the test.
func startBrowser(t *testing.T, path string) *browser {
	t.Helper()
	b := &browser{}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU, chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true), chromedp.Flag("hide-scrollbars", true))
	// A test's cleanup runs after its context has ended.
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	b.ctx, _ = chromedp.NewContext(allocator, chromedp.WithListener(b.note))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
		defer cancel()
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("browser: %v", err)
		}
	})
	// The first run in a context starts the browser, which ends with that context.
	if err := chromedp.Do(b.ctx); err != nil {
		t.Fatalf("browser: %v", err)
	}
	return b
}

// call runs a command without an answer.
func call[P any](command cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, command, params)
		return err
	})
}

// note records an event.
func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, event.Request.URL)
	case *runtime.EventConsoleAPICalled, *runtime.EventExceptionThrown, *log.EventEntryAdded:
		b.complaints = append(b.complaints, fmt.Sprintf("%T %+v", event, event))
	}
}

// do runs an action in the tab and returns its value.
func do[T any](t *testing.T, b *browser, what string, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatalf("browser: %s: %v", what, err)
	}
	return value
}

// open loads a page, waits for it, and resets what was noted before.
func (b *browser) open(t *testing.T, url string) {
	t.Helper()
	b.mu.Lock()
	b.requests, b.complaints = nil, nil
	b.mu.Unlock()
	do(t, b, "opening "+url, chromedp.Navigate(url))
}

// noted returns the requested addresses and the console output since the page was opened.
func (b *browser) noted() (requests, complaints []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests), slices.Clone(b.complaints)
}

// evaluate runs an expression in the page and returns its value.
func evaluate[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	return do(t, b, expression, chromedp.Evaluate[T](expression))
}

// resize sets the size of the viewport.
func (b *browser) resize(t *testing.T, width, height int64, mobile bool) {
	t.Helper()
	options := []chromedp.EmulateViewportOption{chromedp.EmulateScale(1)}
	if mobile {
		options = append(options, chromedp.EmulateMobile)
	}
	do(t, b, "resizing", chromedp.EmulateViewport(width, height, options...))
}

// scheme shows the page as light or dark.
func (b *browser) scheme(t *testing.T, scheme string) {
	t.Helper()
	do(t, b, "showing it "+scheme, call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

// picture writes the page, down to a height, as a PNG, and returns its size in bytes.
func (b *browser) picture(t *testing.T, file string, width, height float64) int {
	t.Helper()
	beyond := true
	shot := do(t, b, "taking a picture", func(ctx context.Context, tab *chromedp.Target) (shown.CaptureScreenshotResult, error) {
		return cdp.Call(ctx, tab, shown.CaptureScreenshot, shown.CaptureScreenshotParams{
			CaptureBeyondViewport: &beyond, Clip: &shown.Viewport{Width: width, Height: height, Scale: 1},
		})
	})
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

// reduced returns the picture in its 256 most frequent colours and maps each other colour to the
// nearest of them. Apart from the edges of its letters, a page has few.
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
