package plan

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// View is the limits of a debit as an item spells them. It is immutable.
type View struct {
	Limits []*store.Limit
	Names  []string // as in the names of attributes
	Params []clock.Params
	Own    bool   // some are the bucket's own, not overrides
	Set    string // identifies the own ones: equal for equal names and parameters, in any order

	attrs []limitAttrs
}

// limitAttrs are the names of a limit's attributes that a debit writes.
type limitAttrs struct{ level, debited, returned string }

// NewView returns the view of some charges. Errors: store.ErrInvalid if a limit exceeds the bounds of the arithmetic.
func NewView(charges []store.Charge) (*View, error) {
	v := &View{
		Limits: make([]*store.Limit, len(charges)), Names: make([]string, len(charges)),
		attrs: make([]limitAttrs, len(charges)), Params: make([]clock.Params, len(charges)),
	}
	var own []string
	for i := range charges {
		l := charges[i].Limit
		p := paramsOf(l)
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("%w: limit %q: %s %s", store.ErrInvalid, l.Name, err.Field, err.Reason)
		}
		name := LimitName(l)
		v.Limits[i], v.Names[i], v.Params[i] = l, name, p
		v.attrs[i] = limitAttrs{prefixLevel + name, prefixDebited + name, prefixReturned + name}
		if !l.Override {
			v.Own = true
			own = append(own, v.Names[i]+"="+formatParams(p))
		}
	}
	if v.Own {
		slices.Sort(own)
		sum := sha256.Sum256([]byte(strings.Join(slices.Compact(own), "\n")))
		v.Set = base64.RawStdEncoding.EncodeToString(sum[:9])
	}
	return v, nil
}

// Of reports whether v is the view of charges.
func (v *View) Of(charges []store.Charge) bool {
	if len(v.Limits) != len(charges) {
		return false
	}
	for i, l := range v.Limits {
		if c := charges[i].Limit; c != l && *c != *l {
			return false
		}
	}
	return true
}

func paramsOf(l *store.Limit) clock.Params {
	return clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
}

// LimitName is what identifies a limit in attribute names: its name and, for an override, also its parameters, because
// both identify it. "!" marks overrides, and is escaped within names.
func LimitName(l *store.Limit) string {
	name := nameEscaper.Replace(l.Name)
	if l.Override {
		return name + "!" + formatParams(paramsOf(l))
	}
	return name
}

var (
	nameEscaper   = strings.NewReplacer("%", "%25", "!", "%21")
	nameUnescaper = strings.NewReplacer("%21", "!", "%25", "%")
)

// ParseLimitName is the inverse of [LimitName]. params is "" for limits that are not overrides.
func ParseLimitName(s string) (name, params string, override bool) {
	name, params, override = strings.Cut(s, "!")
	if strings.Contains(name, "%") {
		name = nameUnescaper.Replace(name)
	}
	return name, params, override
}

func isOverride(name string) bool { return strings.Contains(name, "!") }

// formatParams writes burst/amount/period, as in 75000/50000/60s. The unit "m" stands for millitokens.
func formatParams(p clock.Params) string {
	return formatAmount(p.Burst) + "/" + formatAmount(p.Amount) + "/" + formatPeriod(p.Period)
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

// parseParams is the inverse of formatParams. It rejects parameters that exceed the bounds of the arithmetic.
func parseParams(s string) (p clock.Params, ok bool) {
	burst, rest, _ := strings.Cut(s, "/")
	amount, period, _ := strings.Cut(rest, "/")
	var ok1, ok2, ok3 bool
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
	if n, nanos := strings.CutSuffix(period, "ns"); nanos {
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
