// Package limitname spells limits and their parameters as the attributes of DynamoDB items do.
package limitname

import (
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
)

// Of is what identifies a limit in attribute names: its name and, for an override, also its parameters, because
// both identify it. A limit of slots and another one of its name differ. "!" marks overrides and "%" slots; both are
// escaped within names.
func Of(l *store.Limit) string {
	name := nameEscaper.Replace(l.Name)
	if l.Override {
		return name + "!" + Format(l.Params())
	}
	if l.IsSlots() {
		return name + slots
	}
	return name
}

var (
	nameEscaper   = strings.NewReplacer("%", "%25", "!", "%21")
	nameUnescaper = strings.NewReplacer("%21", "!", "%25", "%")
)

// Parse is the inverse of [Of]. params is "" for limits that are not overrides.
func Parse(s string) (name, params string, override bool) {
	name, params, override = strings.Cut(s, "!")
	name = strings.TrimSuffix(name, slots)
	if strings.Contains(name, "%") {
		name = nameUnescaper.Replace(name)
	}
	return name, params, override
}

// Limit returns the limit of a name, as [Of] spells it, and of parameters.
func Limit(of string, p clock.Params) *store.Limit {
	name, _, override := Parse(of)
	return &store.Limit{
		Name: name, Amount: p.Amount, Period: time.Duration(p.Period), Burst: p.Burst, Window: p.Window,
		Heal: time.Duration(p.Heal), Override: override,
	}
}

// IsOverride reports whether a name is that of an override.
func IsOverride(name string) bool { return strings.Contains(name, "!") }

// slots follows the name of a limit of slots.
const slots = "%slots"

// balance is the text of a balance's parameters.
const balance = "balance"

// Format writes burst/amount/period, as in 75000/50000/60s. The unit "m" stands for millitokens. A quota has a window
// instead of a period, as in 5000/5000/month@Europe/Berlin. A limit of slots has the time in which they heal, as in
// 20/slots/30s, which versions that have no such limits do not accept.
func Format(p clock.Params) string {
	if p.Kind() == clock.Slots {
		return formatAmount(p.Burst) + "/slots/" + formatPeriod(p.Heal)
	}
	text := formatAmount(p.Burst) + "/" + formatAmount(p.Amount) + "/"
	switch p.Kind() {
	case clock.Rate:
		return text + formatPeriod(p.Period)
	case clock.Quota:
		return text + p.Window.String()
	default:
		return balance
	}
}

func formatAmount(milli int64) string {
	if milli%1000 == 0 {
		return strconv.FormatInt(milli/1000, 10)
	}
	return strconv.FormatInt(milli, 10) + "m"
}

func formatPeriod(nanos int64) string {
	if nanos%int64(time.Second) == 0 {
		return strconv.FormatInt(nanos/int64(time.Second), 10) + "s"
	}
	return strconv.FormatInt(nanos, 10) + "ns"
}

// ParseParams is the inverse of [Format]. It rejects parameters that exceed the bounds of the arithmetic.
func ParseParams(s string) (p clock.Params, ok bool) {
	if s == balance {
		return clock.Balance, true
	}
	burst, rest, _ := strings.Cut(s, "/")
	amount, period, _ := strings.Cut(rest, "/")
	var ok1, ok2, ok3 bool
	if amount == "slots" {
		if p, ok = ParseParams(burst + "/1m/" + period); !ok || p.Period == 0 {
			return p, false
		}
		p = clock.Params{Burst: p.Burst, Heal: p.Period}
		return p, p.Check() == nil
	}
	if n, milli := strings.CutSuffix(burst, "m"); milli {
		p.Burst, ok1 = parseScaled(n, 1)
	} else {
		p.Burst, ok1 = parseScaled(n, 1000)
	}
	if n, milli := strings.CutSuffix(amount, "m"); milli {
		p.Amount, ok2 = parseScaled(n, 1)
	} else {
		p.Amount, ok2 = parseScaled(n, 1000)
	}
	if strings.Contains(period, "@") {
		var err error
		p.Window, err = calendar.Parse(period)
		ok3 = err == nil && p.Window.String() == period
	} else if n, nanos := strings.CutSuffix(period, "ns"); nanos {
		p.Period, ok3 = parseScaled(n, 1)
	} else if n, seconds := strings.CutSuffix(period, "s"); seconds {
		p.Period, ok3 = parseScaled(n, int64(time.Second))
	}
	return p, ok1 && ok2 && ok3 && p.Check() == nil
}

func parseScaled(s string, unit int64) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > (1<<63-1)/unit {
		return 0, false
	}
	return n * unit, true
}
