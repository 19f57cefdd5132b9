package lab

import (
	"strings"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/report"
)

// Show prints a document. A blank line sets off every part but texts.
func Show(a *kit.Run, d *report.Document) {
	for i, part := range d.Parts {
		switch part := part.(type) {
		case report.Lines:
			if i > 0 {
				a.Out.Println()
			}
			var pairs []string
			for _, l := range part {
				pairs = append(pairs, l.Name, l.Text(a.Out.Count))
			}
			a.Out.Pairs(pairs...)
		case report.Text:
			for _, line := range part.Lines {
				a.Out.Println(styled(a.Out, part.Style, term.Clean(line)))
			}
		case report.Table:
			showTable(a.Out, i > 0, &part)
		case report.Chart:
			showChart(a.Out, &part)
		}
	}
}

func showTable(s *term.Screen, gap bool, of *report.Table) {
	if gap {
		s.Println()
	}
	rows, right := of.Texts(s.Count)
	t := &term.Table{Header: of.Header, Cut: of.Cut, Right: right}
	for _, row := range rows {
		t.Row(row...)
	}
	s.Table(t)
}

// showChart draws the first line of a chart on a terminal, and prints its table elsewhere.
func showChart(s *term.Screen, c *report.Chart) {
	switch {
	case c.Page:
	case s.Terminal && len(c.Lines[0].Values) > 1:
		s.Println()
		s.Println(s.Bold(strings.ToUpper(c.Title)))
		s.Chart(c.Lines[0].Values, c.Labels[0], c.Labels[len(c.Labels)-1])
	case c.Table != nil:
		showTable(s, true, c.Table)
	}
}

func styled(s *term.Screen, style report.Style, text string) string {
	switch style {
	case report.Warn:
		return s.Warn(text)
	case report.Bad:
		return s.Bad(text)
	case report.Plain:
	}
	return text
}
