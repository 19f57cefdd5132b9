package term

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// Table is rows under a header.
type Table struct {
	Header []string
	Right  []int // columns of numbers, aligned to the right
	Cut    []int // columns that are cut if the terminal is too narrow
	Rows   [][]string
}

// Row adds a row. Control characters are escaped.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = Clean(c)
	}
	t.Rows = append(t.Rows, cells)
}

const gap = 2

// Table writes a table: aligned on a terminal, tab-separated in a pipe.
func (s *Screen) Table(t *Table) {
	if !s.Terminal {
		for _, row := range append([][]string{t.Header}, t.Rows...) {
			s.Println(strings.Join(row, "\t"))
		}
		return
	}
	widths := t.widths(s.Width)
	right := make([]bool, len(t.Header))
	for _, i := range t.Right {
		right[i] = true
	}
	for n, row := range append([][]string{t.Header}, t.Rows...) {
		var b strings.Builder
		for i, cell := range row {
			cell = cut(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-lipgloss.Width(cell))
			if n == 0 {
				cell = s.Bold(cell)
			}
			switch {
			case right[i]:
				b.WriteString(pad + cell)
			case i == len(row)-1:
				b.WriteString(cell)
			default:
				b.WriteString(cell + pad)
			}
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", gap))
			}
		}
		s.Println(strings.TrimRight(b.String(), " "))
	}
}

// widths returns the widths of the columns, reducing those that may be cut until the table fits into all columns.
func (t *Table) widths(all int) []int {
	widths := make([]int, len(t.Header))
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	over := gap*(len(widths)-1) - all
	for _, w := range widths {
		over += w
	}
	for ; over > 0; over-- {
		widest := -1
		for _, i := range t.Cut {
			if widths[i] > minCut && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// minCut is how much of a cell is always shown.
const minCut = 12

func cut(cell string, width int) string {
	if lipgloss.Width(cell) <= width {
		return cell
	}
	runes := []rune(cell)
	for len(runes) > 0 && lipgloss.Width(string(runes)) > width-1 {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// Pairs writes names and values, one pair per line.
func (s *Screen) Pairs(pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, lipgloss.Width(pairs[i]))
	}
	for i := 0; i < len(pairs); i += 2 {
		name, value := pairs[i], Clean(pairs[i+1])
		if !s.Terminal {
			s.Println(name + "\t" + value)
			continue
		}
		s.Println(s.Bold(name) + strings.Repeat(" ", width-lipgloss.Width(name)+gap) + value)
	}
}
