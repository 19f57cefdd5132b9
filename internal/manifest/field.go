package manifest

import (
	"cmp"
	"fmt"
	"iter"
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

// pairs returns the limits before and after a change by name: all after it, then those that it removes. One that is
// missing on either side has no period.
func pairs(before, after []weir.Limit) iter.Seq2[weir.Limit, weir.Limit] {
	return func(yield func(b, a weir.Limit) bool) {
		for _, a := range after {
			if !yield(named(before, a.Name), a) {
				return
			}
		}
		for _, b := range before {
			if a := named(after, b.Name); a == none && !yield(b, a) {
				return
			}
		}
	}
}

// none stands for a limit that is missing: it refuses nothing.
var none = weir.Limit{Enforce: weir.EnforceShadow}

// named returns the limit of that name, or none.
func named(limits []weir.Limit, name string) weir.Limit {
	if i, ok := slices.BinarySearchFunc(limits, weir.Limit{Name: name}, byName); ok {
		return limits[i]
	}
	return none
}

// limitFields returns the changes from one set of limits to another. Without any limits requests are an error, so if
// either set is empty, no single limit loosens or tightens.
func limitFields(before, after []weir.Limit) (fs []Field) {
	both := len(before) > 0 && len(after) > 0
	for b, a := range pairs(before, after) {
		if b != none && a != none {
			fs = append(fs, oneLimit(b, a)...)
			continue
		}
		f := Field{Limit: cmp.Or(a.Name, b.Name), Name: "limit", Old: textOf(b), New: textOf(a)}
		if both {
			f.Moves = moveOf(b, a)
		}
		fs = append(fs, f)
	}
	return fs
}

// textOf is [LimitText] for a limit that may be missing.
func textOf(l weir.Limit) string {
	if l == none {
		return ""
	}
	return LimitText(l)
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
		burst := func(l weir.Limit) string { return strconv.FormatInt(l.Burst, 10) }
		add("burst", burst(b), burst(a), way(cmp.Compare(a.Burst, b.Burst)))
	}
	if a.Enforce != b.Enforce {
		add("enforce", b.Enforce.String(), a.Enforce.String(), way(cmp.Compare(share(b), share(a))))
	}
	return fs
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
		f := Field{Limit: name, Name: "limit", Old: variously(others, name), New: textOf(named(limits, name))}
		for _, o := range others {
			if len(o.limits) > 0 {
				f.Moves = f.Moves.and(moveOf(named(o.limits, name), named(limits, name)))
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

// maxVarious is how many texts are written out if the limit depends on the resource.
const maxVarious = 3

// variously formats a limit that depends on the resource.
func variously(others []layer, name string) string {
	var texts []string
	for _, o := range others {
		if len(o.limits) == 0 {
			continue
		}
		text := cmp.Or(textOf(named(o.limits, name)), "no limit")
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

// from describes where limits come from.
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
