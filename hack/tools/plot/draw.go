package main

import (
	"bytes"
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	width, height = 18 * vg.Centimeter, 11 * vg.Centimeter
	barWidth      = 30 // points
)

// palette is Okabe and Ito's, which people with any colour vision can distinguish; shapes and
// dashes repeat the distinction.
var palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x00, 0x00, 0x00, 0xff},
}

var (
	shapes = []draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{},
	}
	dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}, {10, 4}, {4, 4}, {1, 3}}
	grey   = color.RGBA{0x55, 0x55, 0x55, 0xff}
	faint  = color.RGBA{0xe0, 0xe0, 0xe0, 0xff}
)

// points are values with error bars, for plotters.
type points []point

// Len implements plotter.XYer.
func (p points) Len() int { return len(p) }

// XY implements plotter.XYer.
func (p points) XY(i int) (x, y float64) { return p[i].X, p[i].Y }

// YError implements plotter.YErrorer.
func (p points) YError(i int) (low, high float64) { return p[i].Low - p[i].Y, p[i].High - p[i].Y }

func (p picture) write(name, kind string) error {
	drawn, err := p.draw()
	if err != nil {
		return err
	}
	to, err := drawn.WriterTo(width, height, kind)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	if _, err := to.WriteTo(&file); err != nil {
		return err
	}
	return os.WriteFile(name, file.Bytes(), 0o644)
}

func (p picture) draw() (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text, drawn.X.Label.Text, drawn.Y.Label.Text = p.Title, p.X, p.Y
	drawn.Title.Padding, drawn.X.Label.Padding, drawn.Y.Label.Padding = 8, 4, 4
	drawn.Y.Tick.Marker = plot.TickerFunc(ticks)
	drawn.BackgroundColor = color.White
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = nil, faint
	drawn.Add(grid)
	drawn.Legend.Top, drawn.Legend.Left = true, true
	drawn.Legend.Padding, drawn.Legend.XOffs, drawn.Legend.YOffs = 3, 8, -4
	draw := p.drawSeries
	if len(p.Bars) > 0 {
		draw = p.drawBars
	}
	if err := draw(drawn); err != nil {
		return nil, err
	}
	p.room(drawn)
	return drawn, p.drawReference(drawn)
}

// room begins the axis at zero, and leaves space for the legend at the top.
func (p picture) room(drawn *plot.Plot) {
	lines := len(p.Series) + len(p.Bars)
	if p.Reference != nil {
		drawn.Y.Max = max(drawn.Y.Max, p.Reference.Value)
		lines++
	}
	drawn.Y.Min = min(0, drawn.Y.Min)
	drawn.Y.Max *= 1.05 + 0.065*float64(lines)
}

func (p picture) drawSeries(drawn *plot.Plot) error {
	var at []float64
	for i, s := range p.Series {
		colour := palette[i%len(palette)]
		line, dots, err := plotter.NewLinePoints(s.Points)
		if err != nil {
			return err
		}
		line.Color, line.Width, line.Dashes = colour, vg.Points(1.5), dashes[i%len(dashes)]
		dots.Color, dots.Shape, dots.Radius = colour, shapes[i%len(shapes)], vg.Points(3.5)
		if len(s.Line) == 2 {
			first, last := 0.0, s.Points[len(s.Points)-1].X
			line.XYs = plotter.XYs{{X: first, Y: s.Line[0]}, {X: last, Y: s.Line[0] + s.Line[1]*last}}
		}
		errors, err := plotter.NewYErrorBars(s.Points)
		if err != nil {
			return err
		}
		errors.Color, errors.Width, errors.CapWidth = colour, vg.Points(1), vg.Points(6)
		drawn.Add(line, dots, errors)
		drawn.Legend.Add(s.Name, line, dots)
		for _, p := range s.Points {
			at = append(at, p.X)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	drawn.X.Tick.Marker = measured(at)
	drawn.X.Min, drawn.X.Max = 0, at[len(at)-1]*1.05
	return nil
}

// measured puts a tick where something was measured, and nowhere else. It leaves out a label that
// would overlap the one before.
func measured(at []float64) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		var ticks []plot.Tick
		last := math.Inf(-1)
		for _, x := range at {
			tick := plot.Tick{Value: x}
			if x-last > (high-low)/18 {
				tick.Label, last = thousands(x), x
			}
			ticks = append(ticks, tick)
		}
		return ticks
	})
}

func ticks(low, high float64) []plot.Tick {
	found := plot.DefaultTicks{}.Ticks(low, high)
	for i := range found {
		if found[i].Label != "" {
			found[i].Label = thousands(found[i].Value)
		}
	}
	return found
}

func thousands(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if v == math.Trunc(v) && v >= 10000 {
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
	}
	return text
}

func (p picture) drawBars(drawn *plot.Plot) error {
	heights := make([]float64, len(p.Categories))
	var below *plotter.BarChart
	for i, b := range p.Bars {
		values := make(plotter.Values, len(p.Categories))
		for _, at := range b.Points {
			values[int(at.X)] = at.Y
		}
		chart, err := plotter.NewBarChart(values, vg.Points(barWidth))
		if err != nil {
			return err
		}
		chart.Color, chart.LineStyle.Width = palette[i%len(palette)], vg.Points(0.5)
		if below != nil {
			chart.StackOn(below)
		}
		below = chart
		drawn.Add(chart)
		drawn.Legend.Add(b.Name, chart)
		spread := make(points, 0, len(b.Points))
		for _, at := range b.Points {
			base := heights[int(at.X)]
			heights[int(at.X)] += at.Y
			spread = append(spread, point{X: at.X, Y: base + at.Y, Low: base + at.Low, High: base + at.High})
		}
		if len(spread) == 0 {
			continue
		}
		errors, err := plotter.NewYErrorBars(spread)
		if err != nil {
			return err
		}
		errors.Width, errors.CapWidth = vg.Points(1), vg.Points(6)
		// Above bars that are drawn later.
		defer drawn.Add(errors)
	}
	drawn.NominalX(p.Categories...)
	drawn.X.Min, drawn.X.Max = -0.6, float64(len(p.Categories))-0.4
	return nil
}

func (p picture) drawReference(drawn *plot.Plot) error {
	if p.Reference == nil {
		return nil
	}
	line, err := plotter.NewLine(plotter.XYs{{X: drawn.X.Min, Y: p.Reference.Value}, {X: drawn.X.Max, Y: p.Reference.Value}})
	if err != nil {
		return err
	}
	line.Color, line.Width, line.Dashes = grey, vg.Points(1.5), []vg.Length{3, 3}
	drawn.Add(line)
	drawn.Legend.Add(p.Reference.Name, line)
	return nil
}
