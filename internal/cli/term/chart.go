package term

import (
	"math"
	"slices"
	"strings"

	"github.com/guptarohit/asciigraph"
)

const chartHeight = 8

// Chart draws values over time, with the labels of both ends below. It is for terminals.
func (s *Screen) Chart(values []float64, from, to string) {
	if len(values) == 1 {
		values = []float64{values[0], values[0]}
	}
	// A top that is a multiple of the height gives all rows whole-number labels.
	top := math.Ceil(max(1, slices.Max(values))/chartHeight) * chartHeight
	options := []asciigraph.Option{
		asciigraph.Height(chartHeight), asciigraph.LowerBound(0), asciigraph.UpperBound(top), asciigraph.Precision(0),
	}
	width := s.Width - 14
	if len(values) > width && width > 10 {
		options = append(options, asciigraph.Width(width))
	}
	plot := asciigraph.Plot(values, options...)
	margin, right := 0, 0
	for line := range strings.Lines(plot) {
		line = strings.TrimRight(line, " \n")
		if axis := strings.IndexAny(line, "┤┼"); axis >= 0 {
			margin = max(margin, len([]rune(line[:axis]))+1)
		}
		right = max(right, len([]rune(line)))
		s.Println(line)
	}
	space := max(1, right-margin-len(from)-len(to))
	s.Println(s.Faint(strings.Repeat(" ", margin) + from + strings.Repeat(" ", space) + to))
}
