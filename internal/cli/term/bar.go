package term

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// Warn styles a warning.
func (s *Screen) Warn(text string) string {
	return s.styled(lipgloss.NewStyle().Foreground(lipgloss.Yellow), text)
}

// Bar draws a share, from 0 to 1, as a bar of the given width. Above 0, at least one column is filled; below 1, at
// least one is empty.
func (s *Screen) Bar(share float64, width int) string {
	n := int(share * float64(width))
	if share > 0 {
		n = max(n, 1)
	}
	if share < 1 {
		n = min(n, width-1)
	}
	n = max(0, min(n, width))
	full, style := strings.Repeat("█", n), s.Good
	switch {
	case share >= 0.95:
		style = s.Bad
	case share >= 0.75:
		style = s.Warn
	}
	return style(full) + s.Faint(strings.Repeat("░", width-n))
}

var sparks = []rune("▁▂▃▄▅▆▇█")

// Spark draws values, oldest first, in at most width columns, each showing the mean of several values. It also
// returns the largest mean. Only 0 gets the lowest symbol.
func Spark(values []float64, width int) (line string, top float64) {
	if len(values) == 0 || width < 1 {
		return "", 0
	}
	per := (len(values) + width - 1) / width
	means := make([]float64, 0, width)
	for end := len(values); end > 0; end -= per {
		part := values[max(0, end-per):end]
		sum := 0.0
		for _, v := range part {
			sum += v
		}
		means = append(means, sum/float64(len(part))) // newest first, so that the oldest column gets the remainder
		top = max(top, means[len(means)-1])
	}
	runes := make([]rune, len(means))
	for i, m := range means {
		level := 0
		if m > 0 {
			level = min(len(sparks)-1, 1+int(m/top*float64(len(sparks)-1)))
		}
		runes[len(means)-1-i] = sparks[level]
	}
	return string(runes), top
}

// Clip cuts a line, which may be styled, to width columns.
func Clip(line string, width int) string {
	if lipgloss.Width(line) <= width {
		return line
	}
	return lipgloss.NewStyle().MaxWidth(width).Render(line)
}

// Fit cuts or pads unstyled text to exactly width columns.
func Fit(text string, width int) string {
	text = cut(text, max(1, width))
	return text + strings.Repeat(" ", max(0, width-lipgloss.Width(text)))
}
