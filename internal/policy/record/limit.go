package record

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Limit is a limit in the catalog, in whole tokens.
type Limit struct {
	Name    string
	Amount  int64 // per Period
	Period  time.Duration
	Burst   int64 // 0 means Amount
	Enforce Enforce
	Former  Rate // for the entities outside a percentage; the zero value means none
}

// Rate is how many tokens a limit allows.
type Rate struct {
	Amount int64
	Period time.Duration
	Burst  int64
}

// former returns the limit as it is for the entities outside its percentage.
func (l Limit) former() Limit {
	return Limit{Name: l.Name, Amount: l.Former.Amount, Period: l.Former.Period, Burst: l.Former.Burst}
}

// MaxTokens is the largest burst, and the largest amount in one request.
const MaxTokens = clock.MaxBurst / 1000

// MaxLimits bounds how many limits a bucket has.
const MaxLimits = 64

// Validate returns the limit with its burst filled in, or a ConfigError that names the field.
func (l Limit) Validate() (Limit, error) {
	if l.Burst == 0 {
		l.Burst = l.Amount
	}
	if err := CheckID("limit name", l.Name); err != nil {
		return l, err
	}
	if !l.Enforce.valid() {
		return l, Invalid("limit "+l.Name+": enforce", "must be on, shadow, or 1%% to 99%%")
	}
	if l.Former != (Rate{}) {
		if l.Enforce == EnforceOn || l.Enforce == EnforceShadow {
			return l, Invalid("limit "+l.Name+": former", "requires enforce to be a percentage")
		}
		if _, err := l.former().Validate(); err != nil {
			return l, err
		}
	}
	// Check the bounds first: in millitokens, a large negative number may overflow to a positive one.
	for _, f := range []struct {
		field string
		n     int64
	}{{"amount", l.Amount}, {"burst", l.Burst}} {
		switch {
		case f.n <= 0:
			return l, Invalid("limit "+l.Name+": "+f.field, "must be positive")
		case f.n > MaxTokens:
			return l, Invalid("limit "+l.Name+": "+f.field, "must be at most %d", int64(MaxTokens))
		}
	}
	p := clock.Params{Amount: l.Amount * 1000, Period: int64(l.Period), Burst: l.Burst * 1000}
	if bad := p.Check(); bad != nil {
		return l, &FieldError{Field: "limit " + l.Name + ": " + bad.Field, Reason: bad.Reason}
	}
	return l, nil
}

// ValidateLimits checks a set of limits: that there is one, that each is valid, and that no name appears twice.
func ValidateLimits(ls []Limit) ([]Limit, error) {
	if len(ls) == 0 {
		return nil, Invalid("limits", "must name at least one limit")
	}
	if len(ls) > MaxLimits {
		return nil, Invalid("limits", "may hold at most %d limits", MaxLimits)
	}
	out := make([]Limit, len(ls))
	for i, l := range ls {
		var err error
		if out[i], err = l.Validate(); err != nil {
			return nil, err
		}
		for _, o := range out[:i] {
			if o.Name == l.Name {
				return nil, Invalid("limits", "have the duplicate name %q", l.Name)
			}
		}
	}
	return out, nil
}

// StoredFormer returns the limit in the units of the store, as it is for the entities outside its percentage.
func (l Limit) StoredFormer() store.Limit { return l.former().Stored(false) }

// Stored returns the limit in the units of the store.
func (l Limit) Stored(override bool) store.Limit {
	return store.Limit{
		Name: l.Name, Amount: l.Amount * 1000, Period: l.Period, Burst: l.Burst * 1000,
		Override: override,
	}
}

// ParseLimit reads the text form of a limit; see weir.ParseLimit.
func ParseLimit(text string) (Limit, error) {
	bad := func(format string, args ...any) (Limit, error) {
		return Limit{}, Invalid("limit "+strconv.Quote(text),
			format+"; write name:amount/unit[:burst], as in tpm:50K/min:75K", args...)
	}
	// Cut from the right: a name may contain any character.
	name, rest, ok := cutLast(text)
	if !ok {
		return bad("has no amount")
	}
	burstText, hasBurst := rest, !strings.Contains(rest, "/")
	if hasBurst {
		if name, rest, ok = cutLast(name); !ok {
			return bad("has no period")
		}
	}
	amountText, periodText, ok := strings.Cut(rest, "/")
	if !ok {
		return bad("has no period")
	}
	amount, err := parseCount(amountText)
	if err != nil {
		return bad("has a bad amount %q: %v", amountText, err)
	}
	period, err := parsePeriod(periodText)
	if err != nil {
		return bad("has a bad period %q: %v", periodText, err)
	}
	l := Limit{Name: name, Amount: amount, Period: period, Burst: amount}
	if hasBurst {
		if l.Burst, err = parseCount(burstText); err != nil {
			return bad("has a bad burst %q: %v", burstText, err)
		}
		if l.Burst == 0 {
			return bad("has a burst of 0")
		}
	}
	return l.Validate()
}

func cutLast(s string) (before, after string, ok bool) {
	if at := strings.LastIndexByte(s, ':'); at >= 0 {
		return s[:at], s[at+1:], true
	}
	return "", s, false
}

func parseCount(s string) (int64, error) {
	unit := int64(1)
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 'k', 'K':
			unit, s = 1_000, s[:n-1]
		case 'm', 'M':
			unit, s = 1_000_000, s[:n-1]
		}
	}
	if s == "" {
		return 0, fmt.Errorf("is not a number")
	}
	for _, r := range s {
		switch {
		case r == '-':
			return 0, fmt.Errorf("must not be negative")
		case r == '.' || r == ',':
			return 0, fmt.Errorf("must be a whole number")
		case r < '0' || r > '9':
			return 0, fmt.Errorf("is not a whole number, optionally with K or M")
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("is too large")
	}
	return n * unit, nil
}

// units are ordered from longest to shortest, each with its names; String prints the first.
var units = []struct {
	length time.Duration
	names  []string
}{
	{7 * 24 * time.Hour, []string{"w", "week", "weeks"}},
	{24 * time.Hour, []string{"day", "d", "days"}},
	{time.Hour, []string{"hour", "h", "hr", "hours"}},
	{time.Minute, []string{"min", "m", "minute", "minutes"}},
	{time.Second, []string{"s", "sec", "second", "seconds"}},
	{time.Millisecond, []string{"ms"}},
	{time.Microsecond, []string{"us", "µs"}},
	{time.Nanosecond, []string{"ns"}},
}

func parsePeriod(s string) (time.Duration, error) {
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	n := int64(1)
	if digits > 0 {
		var err error
		if n, err = strconv.ParseInt(s[:digits], 10, 64); err != nil {
			return 0, fmt.Errorf("is too long")
		}
	}
	for _, u := range units {
		for _, name := range u.names {
			if s[digits:] != name {
				continue
			}
			if n <= 0 {
				return 0, fmt.Errorf("must be positive")
			}
			if n > int64(clock.MaxPeriod/u.length) {
				return 0, fmt.Errorf("must be at most 366 days")
			}
			return time.Duration(n) * u.length, nil
		}
	}
	return 0, fmt.Errorf("needs a unit: ms, s, min, h, d or w")
}

// String returns the text form that [ParseLimit] reads. It leaves out Enforce and Former.
func (l Limit) String() string {
	s := l.Name + ":" + formatCount(l.Amount) + "/" + FormatPeriod(l.Period)
	if l.Burst != 0 && l.Burst != l.Amount {
		s += ":" + formatCount(l.Burst)
	}
	return s
}

func formatCount(n int64) string {
	switch {
	case n != 0 && n%1_000_000 == 0:
		return strconv.FormatInt(n/1_000_000, 10) + "M"
	case n >= 10_000 && n%1_000 == 0:
		return strconv.FormatInt(n/1_000, 10) + "K"
	}
	return strconv.FormatInt(n, 10)
}

// FormatPeriod returns a period as in the text of a limit.
func FormatPeriod(d time.Duration) string {
	for _, u := range units {
		if n := d / u.length; d > 0 && d%u.length == 0 {
			if n == 1 {
				return u.names[0]
			}
			return strconv.FormatInt(int64(n), 10) + u.names[0]
		}
	}
	return d.String()
}

// limitJSON is a limit on the wire and in the catalog.
type limitJSON struct {
	Name   string `json:"name"`
	Amount int64  `json:"amount"`
	Period string `json:"period"`
	Burst  int64  `json:"burst,omitempty"`
	// Text; left out if it is on.
	Enforce Enforce   `json:"enforce,omitempty"`
	Former  *rateJSON `json:"former,omitempty"`
}

type rateJSON struct {
	Amount int64  `json:"amount"`
	Period string `json:"period"`
	Burst  int64  `json:"burst"`
}

// MarshalJSON writes {"name":"rpm","amount":100,"period":"min","burst":100}, with "enforce":"shadow" or "25%" if it is
// not on, and "former" if there is one.
func (l Limit) MarshalJSON() ([]byte, error) {
	j := limitJSON{l.Name, l.Amount, FormatPeriod(l.Period), l.Burst, l.Enforce, nil}
	if l.Former != (Rate{}) {
		j.Former = &rateJSON{l.Former.Amount, FormatPeriod(l.Former.Period), l.Former.Burst}
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what [Limit.MarshalJSON] writes, or the text form as a string. It does not check the bounds.
func (l *Limit) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		parsed, err := ParseLimit(text)
		if err == nil {
			*l = parsed
		}
		return err
	}
	var j limitJSON
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return Invalid("limit", "%v", err)
	}
	period, err := parsePeriod(j.Period)
	if err != nil {
		return Invalid("limit "+j.Name+": period", "%v", err)
	}
	*l = Limit{Name: j.Name, Amount: j.Amount, Period: period, Burst: j.Burst, Enforce: j.Enforce}
	if l.Burst == 0 {
		l.Burst = l.Amount
	}
	if j.Former != nil {
		if period, err = parsePeriod(j.Former.Period); err != nil {
			return Invalid("limit "+j.Name+": former period", "%v", err)
		}
		l.Former = Rate{j.Former.Amount, period, j.Former.Burst}
	}
	return nil
}
