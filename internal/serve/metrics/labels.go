package metrics

import "github.com/weirlimits/weir/internal/serve/growing"

// other is the label value of all names beyond the maximum.
const other = "other"

// labels holds the values of a label: the first max names that occur. Each has a number from 1; 0 is other.
type labels struct {
	max   int
	known growing.Map[string, int]
}

// of returns the number of a name.
func (l *labels) of(name string) int {
	n, _ := l.known.Of(name, l.max, func(known int) int { return known + 1 })
	return n
}

// names returns the values by number.
func (l *labels) names() []string {
	known := l.known.All()
	names := make([]string, len(known)+1)
	names[0] = other
	for name, n := range known {
		names[n] = name
	}
	return names
}
