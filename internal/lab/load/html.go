package load

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"
)

// HTML renders one run, or two side by side, as a self-contained page without external resources or scripts.
func HTML(a, b *Report) []byte {
	w := &page{}
	title := "weir load: " + a.Scenario
	w.raw(
		`<!doctype html><html lang="en"><head><meta charset="utf-8">` +
			`<meta name="viewport" content="width=device-width"><title>`,
	)
	w.text(title)
	w.raw("</title><style>" + style + "</style></head><body><h1>")
	w.text(title)
	w.raw("</h1>")
	runs := []*Report{a}
	if b != nil {
		runs = append(runs, b)
		w.comparison(Compare(a, b))
	}
	for i, r := range runs {
		if b != nil {
			w.raw("<h2>" + string(rune('A'+i)) + "</h2>")
		}
		w.run(r)
	}
	w.raw("</body></html>\n")
	return []byte(w.b.String())
}

const style = `body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;` +
	`color:#1c2430;background:#fff}
h1,h2,h3{font-weight:600;line-height:1.2}table{border-collapse:collapse;margin:1rem 0}
th,td{padding:.25rem .75rem;text-align:right;border-bottom:1px solid #8884}` +
	`th:first-child,td:first-child{text-align:left}
.bad{color:#b42318;font-weight:600}figure{margin:1.5rem 0}figcaption{font-weight:600}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:currentColor}.grid{stroke:#8884}
.l0{stroke:#1f6feb}.l1{stroke:#d1242f}.l2{stroke:#8250df}` +
	`.k0{color:#1f6feb}.k1{color:#d1242f}.k2{color:#8250df}polyline{fill:none;stroke-width:1.6}
@media(prefers-color-scheme:dark){body{color:#d7dde5;background:#12161c}.bad{color:#ff8a80}}`

// page is an HTML page under construction.
type page struct{ b strings.Builder }

func (w *page) raw(text string)  { w.b.WriteString(text) }
func (w *page) text(text string) { w.b.WriteString(html.EscapeString(text)) }

func (w *page) table(header []string, rows [][]string) {
	w.raw("<table><thead>")
	w.row("th", header)
	w.raw("</thead><tbody>")
	for _, r := range rows {
		w.row("td", r)
	}
	w.raw("</tbody></table>")
}

func (w *page) row(tag string, cells []string) {
	w.raw("<tr>")
	for _, c := range cells {
		w.raw("<" + tag + ">")
		w.text(c)
		w.raw("</" + tag + ">")
	}
	w.raw("</tr>")
}

func (w *page) run(r *Report) {
	w.raw("<p>")
	w.text(r.Headline())
	w.raw("</p>")
	if r.Overloaded {
		w.raw(`<p class="bad">`)
		w.text(r.Verdict())
		w.raw("</p>")
	}
	w.times(r)
	w.overTime(r)
	w.percentiles(r)
	w.parts("entities", r.Groups)
	w.parts("resources", r.Resources)
	var rows [][]string
	for _, name := range sortedKeys(r.Store) {
		rows = append(rows, []string{name, figure(r.Store[name].Total), figure(r.Store[name].Each)})
	}
	if rows != nil {
		w.table([]string{"store", "total", "per decision"}, rows)
	}
	rows = nil
	for _, text := range sortedKeys(r.Errors) {
		rows = append(rows, []string{text, count(r.Errors[text])})
	}
	if rows != nil {
		w.table([]string{"error", "calls"}, rows)
	}
}

// times writes the tables of response times, service times and lateness.
func (w *page) times(r *Report) {
	header := []string{"p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"}
	var rows [][]string
	for _, o := range r.Ops {
		cells := []string{string(o.Op), count(o.Calls), percent(o.Refused, o.Calls), count(o.Failed)}
		rows = append(rows, append(cells, o.Response.cells()...))
	}
	w.table(append([]string{"operation", "calls", "refused", "failed"}, header...), rows)
	rows = [][]string{append([]string{"service time, from the start of a call"}, r.Service.cells()...)}
	if r.Late != nil {
		rows = append(rows, append([]string{"lateness: start after due time"}, r.Late.cells()...))
	}
	w.table(append([]string{""}, header...), rows)
}

// overTime draws the rates and the latency in the windows of a run.
func (w *page) overTime(r *Report) {
	draw := func(name string, of func(i int) float64) series {
		s := series{name, make([]float64, len(r.Windows))}
		for i := range s.values {
			s.values[i] = of(i)
		}
		return s
	}
	ends := []string{"0s", time.Duration(float64(len(r.Windows)) * r.Width * float64(time.Second)).String()}
	w.chart(&chart{"calls a second", []series{
		draw("answered", func(i int) float64 { return float64(r.Windows[i].Calls) / r.Width }),
		draw("refused", func(i int) float64 { return float64(r.Windows[i].Refused) / r.Width }),
		draw("failed", func(i int) float64 { return float64(r.Windows[i].Failed) / r.Width }),
	}, ends})
	w.chart(&chart{"latency over time, ms", []series{
		draw("p50", func(i int) float64 { return r.Windows[i].P50 }),
		draw("p99", func(i int) float64 { return r.Windows[i].P99 }),
	}, ends})
}

// percentiles draws the latency of each operation by percentile.
func (w *page) percentiles(r *Report) {
	var curves []series
	var ends []string
	for _, o := range r.Ops {
		s := series{name: string(o.Op)}
		ends = nil
		for _, p := range o.Curve {
			s.values = append(s.values, p.Ms)
			ends = append(ends, strconv.FormatFloat(p.Percentile, 'f', -1, 64))
		}
		curves = append(curves, s)
	}
	w.chart(&chart{"latency by percentile, ms", curves, ends})
}

func (w *page) parts(what string, parts []Part) {
	var rows [][]string
	for _, p := range parts {
		rows = append(rows, []string{p.Name, count(p.Calls), percent(p.Refused, p.Calls), count(p.Failed)})
	}
	w.table([]string{what, "calls", "refused", "failed"}, rows)
}

func (w *page) comparison(c *Comparison) {
	if len(c.Unlike) > 0 {
		w.raw(`<p class="bad">`)
		w.text("the runs differ in " + strings.Join(c.Unlike, "; "))
		w.raw("</p>")
	}
	var rows [][]string
	for _, ch := range c.Changes {
		rows = append(rows, ch.Cells())
	}
	w.table([]string{"", "A", "B", "change"}, rows)
}

// chart is a set of lines over the same steps, with labels below them.
type chart struct {
	title  string
	lines  []series
	labels []string
}

type series struct {
	name   string
	values []float64
}

const (
	chartWidth, chartHeight = 720.0, 200.0
	chartLeft, chartBottom  = 56.0, 22.0
)

func (w *page) chart(c *chart) {
	top, steps := 0.0, 0
	for _, l := range c.lines {
		steps = max(steps, len(l.values))
		for _, v := range l.values {
			top = max(top, v)
		}
	}
	if steps == 0 {
		return
	}
	if top == 0 {
		top = 1
	}
	x := func(i, of int) float64 {
		return chartLeft + (chartWidth-chartLeft-12)*float64(i)/float64(max(1, of-1))
	}
	y := func(v float64) float64 { return 8 + (chartHeight-chartBottom-8)*(1-v/top) }
	w.raw("<figure><figcaption>")
	w.text(c.title)
	w.raw("</figcaption>")
	fmt.Fprintf(&w.b, `<svg viewBox="0 0 %g %g" role="img" aria-label="`, chartWidth, chartHeight)
	w.text(c.title)
	w.raw(`">`)
	for _, part := range []float64{0, 0.5, 1} {
		fmt.Fprintf(
			&w.b,
			`<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`,
			chartLeft, chartWidth-12, y(part*top), y(part*top), chartLeft-6, y(part*top)+4, figure(part*top))
	}
	for i, l := range c.lines {
		fmt.Fprintf(&w.b, `<polyline class="l%d" points="`, i%3)
		for j, v := range l.values {
			fmt.Fprintf(&w.b, "%.1f,%.1f ", x(j, steps), y(v))
		}
		if len(l.values) == 1 {
			fmt.Fprintf(&w.b, "%.1f,%.1f", chartWidth-12, y(l.values[0]))
		}
		w.raw(`"/>`)
	}
	for i, label := range c.labels {
		anchor := "middle"
		if i == len(c.labels)-1 {
			anchor = "end"
		}
		fmt.Fprintf(
			&w.b, `<text x="%.1f" y="%g" text-anchor="%s">%s</text>`, x(i, len(c.labels)), chartHeight-6, anchor,
			html.EscapeString(label),
		)
	}
	w.raw("</svg>")
	for i, l := range c.lines {
		fmt.Fprintf(&w.b, `<span class="k%d">■</span> `, i%3)
		w.text(l.name + " ")
	}
	w.raw("</figure>")
}
