package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
)

// Field is one value that changes.
type Field struct {
	Limit string `json:"limit,omitempty"`
	Name  string `json:"name"` // rate, burst, enforce; limit for the whole limit; or another field of the record
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
	Moves Moves  `json:"moves,omitempty"`
}

// LimitText formats a limit without its name, in the words of the format: 500 per minute, burst 700, enforce 25%.
func LimitText(l weir.Limit) string {
	text := rateText(l)
	if l.Burst != l.Amount {
		text += ", burst " + strconv.FormatInt(l.Burst, 10)
	}
	if l.Enforce != weir.EnforceOn {
		text += ", enforce " + l.Enforce.String()
	}
	return text
}

func rateText(l weir.Limit) string { return fmt.Sprintf("%d per %s", l.Amount, periodWord(l.Period)) }

func periodWord(d time.Duration) string {
	switch d {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	return PeriodText(d)
}

// limitFields returns the changes from one set of limits to another. Without any limits requests are an error, so if
// either set is empty, no single limit loosens or tightens.
func limitFields(before, after []weir.Limit) (fs []Field) {
	both := len(before) > 0 && len(after) > 0
	for _, a := range after {
		if i, ok := slices.BinarySearchFunc(before, a, byName); ok {
			fs = append(fs, oneLimit(before[i], a)...)
			continue
		}
		f := Field{Limit: a.Name, Name: "limit", New: LimitText(a)}
		if both && share(a) > 0 {
			f.Moves = Tightens
		}
		fs = append(fs, f)
	}
	for _, b := range before {
		if _, ok := slices.BinarySearchFunc(after, b, byName); !ok {
			f := Field{Limit: b.Name, Name: "limit", Old: LimitText(b)}
			if both && share(b) > 0 {
				f.Moves = Loosens
			}
			fs = append(fs, f)
		}
	}
	return fs
}

// oneLimit returns the changes of a limit. A burst that only follows the amount is left out. While a limit is in
// shadow, its other changes neither loosen nor tighten.
func oneLimit(b, a weir.Limit) (fs []Field) {
	add := func(name, old, text string, m Moves) {
		if name != "enforce" && (share(b) == 0 || share(a) == 0) {
			m = Same
		}
		fs = append(fs, Field{a.Name, name, old, text, m})
	}
	together := b.Burst == b.Amount && a.Burst == a.Amount
	if a.Amount != b.Amount || a.Period != b.Period {
		add("rate", rateText(b), rateText(a), way(rate(a, b)))
	}
	if a.Burst != b.Burst && !together {
		add("burst", strconv.FormatInt(b.Burst, 10), strconv.FormatInt(a.Burst, 10), way(compareInt(a.Burst, b.Burst)))
	}
	if a.Enforce != b.Enforce {
		add("enforce", b.Enforce.String(), a.Enforce.String(), way(compareInt(share(b), share(a))))
	}
	return fs
}

func compareInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// share returns the percentage of entities that a limit refuses.
func share(l weir.Limit) int64 {
	switch l.Enforce {
	case weir.EnforceOn:
		return 100
	case weir.EnforceShadow:
		return 0
	}
	return int64(l.Enforce)
}

// appliesOf returns how the limits that apply change, from others to the set limits or the reverse.
func appliesOf(others []layer, limits []weir.Limit, set bool) []Field {
	if len(others) == 1 {
		switch {
		case len(others[0].limits) == 0:
			return nil
		case set:
			return limitFields(others[0].limits, limits)
		}
		return limitFields(limits, others[0].limits)
	}
	var names []string
	for _, o := range append(slices.Clone(others), layer{limits: limits}) {
		for _, l := range o.limits {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	var fs []Field
	for _, name := range slices.Compact(names) {
		f := Field{Limit: name, Name: "limit", Old: variously(others, name), New: textOf(limits, name)}
		for _, o := range others {
			if len(o.limits) > 0 {
				f.Moves = f.Moves.and(movesOf(only(o.limits, name), only(limits, name)))
			}
		}
		if !set {
			f.Old, f.New, f.Moves = f.New, f.Old, f.Moves.inverse()
		}
		if f.Old != f.New {
			fs = append(fs, f)
		}
	}
	return fs
}

// only returns the limit of that name beside a dummy limit, so that it is not the last one added or removed.
func only(limits []weir.Limit, name string) []weir.Limit {
	const company = ""
	ls := []weir.Limit{{Name: company, Amount: 1, Period: 1, Burst: 1}}
	if i := slices.IndexFunc(limits, func(l weir.Limit) bool { return l.Name == name }); i >= 0 {
		ls = append(ls, limits[i])
	}
	return ls
}

func textOf(limits []weir.Limit, name string) string {
	if i := slices.IndexFunc(limits, func(l weir.Limit) bool { return l.Name == name }); i >= 0 {
		return LimitText(limits[i])
	}
	return ""
}

// maxVarious is how many texts are written out if the limit depends on the resource.
const maxVarious = 3

// variously formats a limit that depends on the resource.
func variously(others []layer, name string) string {
	var texts []string
	for _, o := range others {
		if len(o.limits) == 0 {
			continue
		}
		text := textOf(o.limits, name)
		if text == "" {
			text = "no limit"
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	switch {
	case len(texts) == 1 && texts[0] == "no limit":
		return ""
	case len(texts) > maxVarious:
		return "depends on the resource"
	}
	slices.Sort(texts)
	return strings.Join(texts, " or ")
}

// from says where limits come from.
func from(others []layer) string {
	if len(others) == 1 {
		if len(others[0].limits) == 0 {
			return ""
		}
		return others[0].name()
	}
	text := "each resource that has limits"
	if len(others[0].limits) > 0 {
		return text + ", else the system defaults"
	}
	return text + "; requests on other resources are an error"
}
