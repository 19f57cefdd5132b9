// Package chart draws line charts as SVG: panels side by side, with logarithmic axes.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"
)

// Figure is a row of panels with one legend.
type Figure struct {
	Title  string
	X      string // what the horizontal axes count
	Panels []Panel
}

// Panel is one chart.
type Panel struct {
	Title  string // with the unit
	Series []Series
}

// Series is a line. Series of the same name have the same color in all panels of a figure.
type Series struct {
	Name   string
	Dashed bool // and without an entry in the legend
	Points []Point
}

// Point is a point of a line. Both coordinates are above 0.
type Point struct{ X, Y float64 }

// The sizes of a panel, and of the room around its plot.
const (
	width, height            = 300, 240
	left, right, top, bottom = 52, 14, 62, 40
)

var colors = []string{"#1f77b4", "#d9620f", "#2a8c3c", "#9b3fb5", "#6b6b6b"}

const style = `text{font:11px system-ui,sans-serif;fill:#1c2430}.t{font-weight:600}.g{stroke:#e3e7ec}` +
	`polyline{fill:none;stroke-width:1.8}.d{stroke-dasharray:4 3}`

// SVG draws a figure.
func (f Figure) SVG() []byte {
	var b bytes.Buffer
	w := width*max(1, len(f.Panels)) + right // a label at the end of an axis is wider than the room beside it
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" `+
		`aria-label="%s">`+"\n<style>%s</style>\n", w, height, html.EscapeString(f.Title), style)
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	text(&b, 10, 18, "t", f.Title)
	color := make(map[string]string)
	x := 10
	for _, p := range f.Panels {
		for _, s := range p.Series {
			if _, ok := color[s.Name]; ok {
				continue
			}
			color[s.Name] = colors[len(color)%len(colors)]
			fmt.Fprintf(&b, `<rect x="%d" y="27" width="10" height="10" fill="%s"/>`+"\n", x, color[s.Name])
			text(&b, x+14, 36, "", s.Name)
			x += 28 + 7*len(s.Name)
		}
	}
	for i, p := range f.Panels {
		p.draw(&b, i*width, f.X, color)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func text(b *bytes.Buffer, x, y int, class, s string) {
	if class != "" {
		class = fmt.Sprintf(" class=%q", class)
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, class, html.EscapeString(s))
}

// axis maps a range of powers of ten to a length, from a start on.
type axis struct{ low, high, start, length float64 }

// over returns the axis that holds all values, from one power of ten to another.
func over(values []float64, start, length float64) axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, math.Log10(v)), max(high, math.Log10(v))
	}
	low, high = math.Floor(low+1e-9), math.Ceil(high-1e-9)
	return axis{low, max(high, low+1), start, length}
}

func (a axis) at(v float64) float64 { return a.start + a.length*(math.Log10(v)-a.low)/(a.high-a.low) }

// ticks returns the powers of ten on the axis, at most seven or so.
func (a axis) ticks() (ticks []float64) {
	step := max(1, math.Ceil((a.high-a.low)/6))
	for e := a.low; e <= a.high; e += step {
		ticks = append(ticks, math.Pow(10, e))
	}
	return ticks
}

func (p Panel) draw(b *bytes.Buffer, from int, what string, color map[string]string) {
	var xs, ys []float64
	for _, s := range p.Series {
		for _, pt := range s.Points {
			xs, ys = append(xs, pt.X), append(ys, pt.Y)
		}
	}
	if len(xs) == 0 {
		return
	}
	x := over(xs, float64(from+left), width-left-right)
	y := over(ys, height-bottom, -(height - top - bottom))
	text(b, from+10, top-8, "t", p.Title)
	text(b, from+left, height-8, "", what)
	for _, t := range x.ticks() {
		fmt.Fprintf(b, `<path class="g" d="M%.1f %dV%d"/>`, x.at(t), top, height-bottom)
		text(b, int(x.at(t))-8, height-bottom+14, "", short(t))
	}
	for _, t := range y.ticks() {
		fmt.Fprintf(b, `<path class="g" d="M%d %.1fH%d"/>`, from+left, y.at(t), from+width-right)
		text(b, from+10, int(y.at(t))+4, "", short(t))
	}
	for _, s := range p.Series {
		class := ""
		if s.Dashed {
			class = ` class="d"`
		}
		var at []string
		for _, pt := range s.Points {
			at = append(at, fmt.Sprintf("%.1f,%.1f", x.at(pt.X), y.at(pt.Y)))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.2" fill="%s"><title>%s: %s at %s</title></circle>`+"\n",
				x.at(pt.X), y.at(pt.Y), color[s.Name], html.EscapeString(s.Name), short(pt.Y), short(pt.X))
		}
		fmt.Fprintf(b, `<polyline%s stroke="%s" points="%s"/>`+"\n", class, color[s.Name], strings.Join(at, " "))
	}
}

// short returns a number in three digits, as 1.2k or 34M.
func short(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= 0.9995*u.size {
			return fmt.Sprintf("%.3g%s", v/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.3g", v)
}
