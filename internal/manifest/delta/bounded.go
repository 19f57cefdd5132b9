package delta

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimits/weir/admin"
)

// Bounded returns the changes from one list of limits that begin or end to another. Those that begin at the same time
// are compared.
func Bounded(before, after []admin.Bounded) (fs []Field) {
	from := func(all []admin.Bounded, when admin.Instant) string {
		i := slices.IndexFunc(all, func(b admin.Bounded) bool { return b.From == when })
		if i < 0 {
			return ""
		}
		return boundedText(&all[i])
	}
	for i := range after {
		fs = append(fs, Text("bounded", from(before, after[i].From), boundedText(&after[i]), Same)...)
	}
	for i := range before {
		if from(after, before[i].From) == "" {
			fs = append(fs, Text("bounded", boundedText(&before[i]), "", Same)...)
		}
	}
	return fs
}

// boundedText formats limits that begin or end: 10 × as much until 2026-12-04T18:00@Europe/Berlin.
func boundedText(b *admin.Bounded) string {
	var texts []string
	if b.Scale != 0 {
		texts = []string{strconv.FormatInt(b.Scale, 10) + " × as much"}
	}
	for _, l := range Sorted(b.Limits) {
		texts = append(texts, l.Name+" "+limitText(l))
	}
	text := strings.Join(texts, "; ")
	if !b.From.IsZero() {
		text += " from " + b.From.String()
	}
	if !b.Until.IsZero() {
		text += " until " + b.Until.String()
	}
	return text
}
