package report

import (
	"cmp"
	"fmt"
	"html"
	"strconv"
	"strings"
)

// Page renders documents, one below the other, as a self-contained page without external resources or scripts. The
// title of the first is that of the page.
func Page(documents ...*Document) []byte {
	w := &page{}
	w.raw(`<!doctype html><html lang="en"><head><meta charset="utf-8">` +
		`<meta name="viewport" content="width=device-width">`)
	w.tag("title", documents[0].Title)
	w.raw("<style>" + style + "</style></head><body>")
	for i, d := range documents {
		w.tag([]string{"h1", "h2"}[min(i, 1)], d.Title)
		for _, part := range d.Parts {
			w.part(part)
		}
	}
	w.raw("</body></html>\n")
	return []byte(w.b.String())
}

const style = `body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;` +
	`color:#1c2430;background:#fff}
h1,h2,h3{font-weight:600;line-height:1.2}table{border-collapse:collapse;margin:1rem 0}
th,td{padding:.25rem .75rem;text-align:right;border-bottom:1px solid #8884}` +
	`th:first-child,td:first-child{text-align:left}
.warn,.bad{color:#b42318;font-weight:600}figure{margin:1.5rem 0}figcaption{font-weight:600}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:currentColor}.grid{stroke:#8884}
.l0{stroke:#1f6feb}.l1{stroke:#d1242f}.l2{stroke:#8250df}` +
	`.k0{color:#1f6feb}.k1{color:#d1242f}.k2{color:#8250df}polyline{fill:none;stroke-width:1.6}
@media(prefers-color-scheme:dark){body{color:#d7dde5;background:#12161c}.warn,.bad{color:#ff8a80}}`

// page is an HTML page under construction.
type page struct{ b strings.Builder }

func (w *page) raw(text string) { w.b.WriteString(text) }
func (w *page) tag(name, text string) {
	w.raw("<" + name + ">" + html.EscapeString(text) + "</" + name + ">")
}

func (w *page) part(part any) {
	decimal := Count(func(n int64) string { return strconv.FormatInt(n, 10) })
	switch part := part.(type) {
	case Lines:
		w.raw("<table><tbody>")
		for _, l := range part {
			w.row("td", []string{l.Name, l.Text(decimal)})
		}
		w.raw("</tbody></table>")
	case Text:
		w.raw([]string{"<p>", `<p class="warn">`, `<p class="bad">`}[part.Style])
		w.raw(strings.ReplaceAll(html.EscapeString(strings.Join(part.Lines, "\n")), "\n", "<br>") + "</p>")
	case Table:
		rows, _ := part.Texts(decimal)
		w.raw("<table><thead>")
		w.row("th", part.Header)
		w.raw("</thead><tbody>")
		for _, r := range rows {
			w.row("td", r)
		}
		w.raw("</tbody></table>")
	case Chart:
		w.chart(&part)
	}
}

func (w *page) row(tag string, cells []string) {
	w.raw("<tr>")
	for _, c := range cells {
		w.tag(tag, c)
	}
	w.raw("</tr>")
}

const (
	chartWidth, chartHeight = 720.0, 200.0
	chartLeft, chartBottom  = 56.0, 22.0
)

func (w *page) chart(c *Chart) {
	top, steps := 0.0, 0
	for _, l := range c.Lines {
		steps = max(steps, len(l.Values))
		for _, v := range l.Values {
			top = max(top, v)
		}
	}
	if steps == 0 {
		return
	}
	top = cmp.Or(top, 1)
	x := func(i, of int) float64 {
		return chartLeft + (chartWidth-chartLeft-12)*float64(i)/float64(max(1, of-1))
	}
	y := func(v float64) float64 { return 8 + (chartHeight-chartBottom-8)*(1-v/top) }
	w.raw("<figure>")
	w.tag("figcaption", c.Title)
	fmt.Fprintf(&w.b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartWidth, chartHeight,
		html.EscapeString(c.Title))
	for _, part := range []float64{0, 0.5, 1} {
		fmt.Fprintf(
			&w.b,
			`<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`,
			chartLeft, chartWidth-12, y(part*top), y(part*top), chartLeft-6, y(part*top)+4, Figure(part*top))
	}
	for i, l := range c.Lines {
		fmt.Fprintf(&w.b, `<polyline class="l%d" points="`, i%3)
		for j, v := range l.Values {
			fmt.Fprintf(&w.b, "%.1f,%.1f ", x(j, steps), y(v))
		}
		if len(l.Values) == 1 {
			fmt.Fprintf(&w.b, "%.1f,%.1f", chartWidth-12, y(l.Values[0]))
		}
		w.raw(`"/>`)
	}
	for i, label := range c.Labels {
		anchor := "middle"
		if i == len(c.Labels)-1 {
			anchor = "end"
		}
		fmt.Fprintf(
			&w.b, `<text x="%.1f" y="%g" text-anchor="%s">%s</text>`, x(i, len(c.Labels)), chartHeight-6, anchor,
			html.EscapeString(label),
		)
	}
	w.raw("</svg>")
	for i, l := range c.Lines {
		fmt.Fprintf(&w.b, `<span class="k%d">■</span> %s `, i%3, html.EscapeString(l.Name))
	}
	w.raw("</figure>")
}

// Figure formats a number to three digits; whole numbers are shown in full.
func Figure(x float64) string {
	switch {
	case x == float64(int64(x)) || x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x >= 1:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}
