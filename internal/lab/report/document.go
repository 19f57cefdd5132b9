package report

import (
	"fmt"
	"strconv"
)

// Document is a report for people: parts in order, each a Lines, a Text, a Table or a Chart.
type Document struct {
	Title string
	Parts []any
}

// Line is a name and a value. The value is formatted from Args, of which those that Count accepts are counts: %v.
type Line struct {
	Name, Format string
	Args         []any
}

// Style is how a text stands out.
type Style int

// Styles.
const (
	Plain Style = iota
	Warn
	Bad
)

// Text is lines of text. An empty line is a blank one.
type Text struct {
	Style Style
	Lines []string
}

// Table is rows under a header. A cell is a text, or one of the values of [Count.Of]; columns of counts, bounds and
// numbers are aligned to the right.
type Table struct {
	Header []string
	Rows   [][]any
	Cut    []int // columns that are cut if a terminal is too narrow
}

// Noted adds notes below the document.
func (d *Document) Noted(notes []string) *Document {
	if len(notes) > 0 {
		text := Text{Lines: []string{""}}
		for _, n := range notes {
			text.Lines = append(text.Lines, "note: "+n)
		}
		d.Parts = append(d.Parts, text)
	}
	return d
}

// Row adds a row.
func (t *Table) Row(cells ...any) { t.Rows = append(t.Rows, cells) }

// Chart is a set of lines over the same steps, with labels below them. A terminal draws the first line, and a pipe
// has the table, if there is one, instead.
type Chart struct {
	Title  string
	Lines  []Series
	Labels []string
	Table  *Table
	Page   bool // only on pages
}

// Series is a line of a chart.
type Series struct {
	Name   string
	Values []float64
}

// Plot returns the line that has a value for each of n steps.
func Plot(name string, n int, of func(i int) float64) Series {
	s := Series{name, make([]float64, n)}
	for i := range s.Values {
		s.Values[i] = of(i)
	}
	return s
}

// Number is a text that is aligned like a number.
type Number string

// Bounds are two counts, or one if they are equal.
type Bounds struct{ Least, Most int64 }

// Lines collects the lines of a document.
type Lines []Line

// Add adds a line.
func (l *Lines) Add(name, format string, args ...any) {
	*l = append(*l, Line{Name: name, Format: format, Args: args})
}

// Count formats a count.
type Count func(n int64) string

// Of formats a value, and reports whether it is aligned like a number.
func (c Count) Of(v any) (text string, number bool) {
	switch v := v.(type) {
	case nil:
		return "", false
	case int:
		return c(int64(v)), true
	case int64:
		return c(v), true
	case uint64:
		return c(int64(v)), true
	case Number:
		return string(v), true
	case Bounds:
		if v.Least == v.Most {
			return c(v.Least), true
		}
		return c(v.Least) + " to " + c(v.Most), true
	}
	return fmt.Sprint(v), false
}

// Text formats the value of a line.
func (l *Line) Text(c Count) string {
	args := make([]any, len(l.Args))
	for i, a := range l.Args {
		args[i] = a
		if text, number := c.Of(a); number {
			args[i] = text
		}
	}
	return fmt.Sprintf(l.Format, args...)
}

// Texts formats the rows, and returns the columns that are aligned to the right.
func (t *Table) Texts(c Count) (rows [][]string, right []int) {
	for n, cells := range t.Rows {
		row := make([]string, len(cells))
		for i, v := range cells {
			var number bool
			if row[i], number = c.Of(v); number && n == 0 {
				right = append(right, i)
			}
		}
		rows = append(rows, row)
	}
	return rows, right
}

// Part returns part of whole in percent.
func Part[N int | int64 | uint64](part, whole N) float64 {
	return 100 * float64(part) / float64(max(1, whole))
}

// Plural returns a count with its noun.
func Plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
