package delta

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Field is one value that changes.
type Field struct {
	Limit string `json:"limit,omitempty"`
	// Name is rate, slots, heal, burst, enforce, former, max_debt or returns; limit for the whole limit; or another
	// field of the record.
	Name  string `json:"name"`
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
	Moves Moves  `json:"moves,omitempty"`
}

// limitText formats a limit without its name, in the words of the format: 500 per minute, burst 700, enforce 25%.
func limitText(l weir.Limit) string {
	text := rateText(l)
	if l.Burst != l.Amount {
		text += ", burst " + strconv.FormatInt(l.Burst, 10)
	}
	if l.Enforce != weir.EnforceOn {
		text += ", enforce " + l.Enforce.String()
	}
	if l.Former != (weir.Rate{}) {
		text += ", former " + formerText(l)
	}
	if l.MaxDebt != 0 {
		text += ", max_debt " + strconv.FormatInt(l.MaxDebt, 10)
	}
	if l.Strict {
		text += ", returns " + returnsText(l)
	}
	return text
}

// formerText formats the rate for the entities outside a percentage; "" if there is none.
func formerText(l weir.Limit) string {
	if l.Former == (weir.Rate{}) {
		return ""
	}
	l = strictyaml.Former(l)
	text := rateText(l)
	if l.Burst != l.Amount {
		text += ", burst " + strconv.FormatInt(l.Burst, 10)
	}
	return text
}

func rateText(l weir.Limit) string {
	switch {
	case l.Balance:
		return strictyaml.Balance
	case l.Slots > 0:
		return fmt.Sprintf("%d slots, heal %s", l.Slots, strictyaml.PeriodText(l.Heal))
	case l.Period == 0:
		return fmt.Sprintf("%d per %s", l.Amount, l.Window)
	}
	return fmt.Sprintf("%d per %s", l.Amount, periodWord(l.Period))
}

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
	return strictyaml.PeriodText(d)
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
	if i, ok := slices.BinarySearchFunc(limits, weir.Limit{Name: name}, ByName); ok {
		return limits[i]
	}
	return none
}

// Limits returns the changes from one set of limits to another. Without any limits requests are an error, so if
// either set is empty, no single limit loosens or tightens.
func Limits(before, after []weir.Limit) (fs []Field) {
	both := len(before) > 0 && len(after) > 0
	for b, a := range pairs(before, after) {
		if b != none && a != none {
			fs = append(fs, oneLimit(b, a)...)
			continue
		}
		f := Field{Limit: cmp.Or(a.Name, b.Name), Name: "limit", Old: textOf(b), New: textOf(a)}
		if both {
			f.Moves = OfLimit(b, a)
		}
		fs = append(fs, f)
	}
	return fs
}

// textOf is limitText for a limit that may be missing.
func textOf(l weir.Limit) string {
	if l == none {
		return ""
	}
	return limitText(l)
}

// oneLimit returns the changes of a limit. While it is in shadow, its other changes neither loosen nor tighten. Limits
// of slots and balances have no burst, and that of a quota is its amount.
func oneLimit(b, a weir.Limit) (fs []Field) {
	add := func(name, old, text string, m Moves) {
		if share(b) == 0 || share(a) == 0 {
			m = Same
		}
		fs = append(fs, Field{a.Name, name, old, text, m})
	}
	switch {
	case a.Slots > 0 && b.Slots > 0:
		if a.Slots != b.Slots {
			add("slots", fmt.Sprint(b.Slots), fmt.Sprint(a.Slots), rateMove(b, a))
		}
		if a.Heal != b.Heal { // admits no more and no less at once
			add("heal", strictyaml.PeriodText(b.Heal), strictyaml.PeriodText(a.Heal), Same)
		}
	case rateText(a) != rateText(b):
		add("rate", rateText(b), rateText(a), rateMove(b, a))
	}
	if a.Burst != b.Burst && a.Period > 0 && b.Period > 0 {
		burst := func(l weir.Limit) string { return strconv.FormatInt(l.Burst, 10) }
		add("burst", burst(b), burst(a), way(cmp.Compare(a.Burst, b.Burst)))
	}
	if a.Enforce != b.Enforce {
		m := way(cmp.Compare(share(b), share(a)))
		if a.Former != b.Former {
			m = OfLimit(b, a)
		}
		fs = append(fs, Field{a.Name, "enforce", b.Enforce.String(), a.Enforce.String(), m})
	}
	if a.Former != b.Former {
		m := Same // its effect is that of enforce
		if a.Enforce == b.Enforce {
			m = OfLimit(b, a)
		}
		fs = append(fs, Field{a.Name, "former", formerText(b), formerText(a), m})
	}
	if a.MaxDebt != b.MaxDebt {
		add("max_debt", maxDebtText(b), maxDebtText(a), debtMove(b, a))
	}
	if a.Strict != b.Strict {
		add("returns", returnsText(b), returnsText(a), returnsMove(b, a))
	}
	return fs
}

func returnsMove(b, a weir.Limit) Moves {
	switch {
	case a.Strict == b.Strict:
		return Same
	case a.Strict:
		return Tightens
	}
	return Loosens
}

// debtMove leaves out a default that only follows the burst.
func debtMove(b, a weir.Limit) Moves {
	if a.MaxDebt == b.MaxDebt {
		return Same
	}
	return way(cmp.Compare(maxDebt(b), maxDebt(a)))
}

// maxDebt returns how far into debt an adjustment brings a limit. What exceeds that is not debited: less is looser.
func maxDebt(l weir.Limit) int64 { return cmp.Or(l.MaxDebt, 10*min(l.Burst, weir.MaxTokens/10)) }

func maxDebtText(l weir.Limit) string {
	text := strconv.FormatInt(maxDebt(l), 10)
	if l.MaxDebt == 0 {
		text += " (default)"
	}
	return text
}

func returnsText(l weir.Limit) string {
	if l.Strict {
		return "strict"
	}
	return "full"
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

// Applying returns how the limits that apply change, from others to the set limits or the reverse. There are several
// others if they depend on the resource; some may be empty.
func Applying(others [][]weir.Limit, limits []weir.Limit, set bool) []Field {
	if len(others) == 1 {
		switch {
		case len(others[0]) == 0:
			return nil
		case set:
			return Limits(others[0], limits)
		}
		return Limits(limits, others[0])
	}
	var names []string
	for _, o := range append(slices.Clone(others), limits) {
		for _, l := range o {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	var fs []Field
	for _, name := range slices.Compact(names) {
		f := Field{Limit: name, Name: "limit", Old: variously(others, name), New: textOf(named(limits, name))}
		for _, o := range others {
			if len(o) > 0 {
				f.Moves = f.Moves.And(OfLimit(named(o, name), named(limits, name)))
			}
		}
		if !set {
			f.Old, f.New, f.Moves = f.New, f.Old, f.Moves.Inverse()
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
func variously(others [][]weir.Limit, name string) string {
	var texts []string
	for _, o := range others {
		if len(o) == 0 {
			continue
		}
		text := cmp.Or(textOf(named(o, name)), "no limit")
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

// Text returns the change of a value from one text to another: nothing if they are equal.
func Text(name, old, text string, m Moves) []Field {
	if old == text {
		return nil
	}
	return []Field{{Name: name, Old: old, New: text, Moves: m}}
}

// ByName orders limits.
func ByName(a, b weir.Limit) int { return cmp.Compare(a.Name, b.Name) }

// Sorted returns limits by name.
func Sorted(limits []weir.Limit) []weir.Limit {
	if slices.IsSortedFunc(limits, ByName) {
		return limits
	}
	return slices.SortedFunc(slices.Values(limits), ByName)
}
