package record

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
)

// Limit is a limit in the catalog, in whole tokens.
type Limit struct {
	Name    string
	Amount  int64 // per Period or Window
	Period  time.Duration
	Burst   int64           // 0 means Amount
	Window  calendar.Window // of a quota, which has no Period
	Balance bool            // has no Amount, Period, Burst and Window
	Slots   int64           // held at once; such a limit has nothing of the above but a name
	Heal    time.Duration   // of slots; 0 means DefaultHeal
	Enforce Enforce
	Former  Rate // for the entities outside a percentage; the zero value means none
	MaxDebt int64
	Strict  bool
}

// Rate is how much a limit allows: Amount per Period, of which Burst can be spent at once, Amount in each Window, or so
// many Slots at once.
type Rate struct {
	Amount int64
	Period time.Duration
	Burst  int64
	Window calendar.Window
	Slots  int64
	Heal   time.Duration
}

// Terms are what applies to a lease's tokens of a limit once they are spent.
type Terms struct {
	MaxDebt int64 // in millitokens; 0 means the default
	Strict  bool
}

// Terms returns the limit's terms.
func (l Limit) Terms() Terms { return Terms{l.MaxDebt * 1000, l.Strict} }

// DefaultMaxDebt returns how far into debt a limit may be brought by default: ten times its burst.
func DefaultMaxDebt(l *store.Limit) int64 { return 10 * min(l.Burst, clock.MaxBurst/10) }

// Charge returns a charge of 0 on a limit with these terms.
func (t Terms) Charge(l *store.Limit) store.Charge {
	return store.Charge{Limit: l, MaxDebt: cmp.Or(t.MaxDebt, DefaultMaxDebt(l)), Strict: t.Strict}
}

// Plain returns a limit of the store in whole tokens.
func Plain(l *store.Limit) Limit {
	switch l.Params().Kind() {
	case clock.Credits:
		return Limit{Name: l.Name, Balance: true}
	case clock.Slots:
		return Limit{Name: l.Name, Slots: l.Burst / 1000, Heal: l.Heal}
	case clock.Rate, clock.Quota:
	}
	return Limit{Name: l.Name, Amount: l.Amount / 1000, Period: l.Period, Burst: l.Burst / 1000, Window: l.Window}
}

// Of returns the limit of a charge, as far as the charge has it.
func Of(c store.Charge) Limit {
	l := Plain(c.Limit)
	l.Strict = c.Strict
	if c.MaxDebt > 0 && c.MaxDebt != DefaultMaxDebt(c.Limit) {
		l.MaxDebt = max(1, c.MaxDebt/1000)
	}
	return l
}

// Rate returns the limit's rate, which can be the Former of another limit.
func (l Limit) Rate() Rate { return Rate{l.Amount, l.Period, l.Burst, l.Window, l.Slots, l.Heal} }

// former returns the limit as it is for the entities outside its percentage.
func (l Limit) former() Limit {
	return Limit{Name: l.Name}.with(l.Former)
}

// with returns the limit with another rate.
func (l Limit) with(r Rate) Limit {
	l.Amount, l.Period, l.Burst, l.Window, l.Slots, l.Heal = r.Amount, r.Period, r.Burst, r.Window, r.Slots, r.Heal
	return l
}

// MaxTokens is the largest burst, and the largest amount in one request.
const MaxTokens = clock.MaxBurst / 1000

// MaxLimits bounds how many limits a bucket has.
const MaxLimits = store.MaxLimits

// Validate returns the limit with its burst or heal time filled in, or a ConfigError that names the field.
func (l Limit) Validate() (Limit, error) {
	if l.Burst == 0 && !l.IsSlots() {
		l.Burst = l.Amount
	}
	if err := CheckID("limit name", l.Name); err != nil {
		return l, err
	}
	if l.MaxDebt < 0 || l.MaxDebt > MaxTokens {
		return l, Invalid("limit "+l.Name+": max_debt", "must be between 1 and %d", int64(MaxTokens))
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
	if l.IsSlots() {
		return l.checkSlots()
	}
	if l.Balance {
		return l, l.checkBalance()
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
	stored := l.Stored(false)
	if bad := stored.Params().Check(); bad != nil {
		return l, &FieldError{Field: "limit " + l.Name + ": " + bad.Field, Reason: bad.Reason}
	}
	return l, nil
}

// checkBalance reports what a balance cannot have.
func (l Limit) checkBalance() error {
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"amount", l.Amount != 0},
		{"period", l.Period != 0 || l.Window != (calendar.Window{})},
		{"burst", l.Burst != 0},
		{"enforce", l.Enforce != EnforceOn},
		{"returns", l.Strict},
	} {
		if f.has {
			return Invalid("limit "+l.Name+": "+f.name, "must be left out: a balance has what was credited")
		}
	}
	return nil
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
	if l.Balance {
		return store.Limit{Name: l.Name, Burst: clock.Balance.Burst, Override: override}
	}
	if l.IsSlots() {
		return l.storedSlots(override)
	}
	return store.Limit{
		Name: l.Name, Amount: l.Amount * 1000, Period: l.Period, Burst: l.Burst * 1000, Window: l.Window,
		Override: override,
	}
}

// ParseLimit reads the text form of a limit; see weir.ParseLimit.
func ParseLimit(text string) (Limit, error) {
	bad := func(format string, args ...any) (Limit, error) {
		return Limit{}, Invalid("limit "+strconv.Quote(text),
			format+"; write name:amount/unit[:burst], as in tpm:50K/min:75K or usd:5000/month@UTC, or parallel:20slots",
			args...)
	}
	// Cut from the right: a name may contain any character.
	name, rest, ok := cutLast(text)
	if !ok {
		if alike := strings.Replace(text, "=", ":", 1); alike != text && isLimit(alike) {
			return Limit{}, Invalid("limit "+strconv.Quote(text), "has = for a colon: did you mean %s?", alike)
		}
		return bad("has no amount")
	}
	if rest == balanceText {
		return Limit{Name: name, Balance: true}.Validate()
	}
	if count, heal, ok := cutSlots(rest); ok {
		n, err := parseCount(count)
		if err != nil {
			return bad("has a bad number of slots %q: %v", count, err)
		}
		d, err := parseHeal(heal)
		if err != nil {
			return bad("has a bad heal time %q: %v", heal, err)
		}
		return Limit{Name: name, Slots: n, Heal: d}.Validate()
	}
	burstText, hasBurst := rest, !strings.Contains(rest, "/")
	if hasBurst {
		if name, rest, ok = cutLast(name); !ok {
			return bad("has no period")
		}
	}
	amountText, periodText, ok := strings.Cut(rest, "/")
	if _, _, slots := cutSlots(rest); slots || rest == balanceText {
		return bad("has a burst, which slots and balances do not have")
	}
	if !ok {
		return bad("has no period")
	}
	amount, err := parseCount(amountText)
	if err != nil {
		return bad("has a bad amount %q: %v", amountText, err)
	}
	l := Limit{Name: name, Amount: amount, Burst: amount}
	if l.Period, l.Window, err = parsePeriod(periodText); err != nil {
		return bad("has a bad period %q: %v", periodText, err)
	}
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

func isLimit(text string) bool { _, err := ParseLimit(text); return err == nil }

func cutLast(s string) (before, after string, ok bool) {
	if at := strings.LastIndexByte(s, ':'); at >= 0 {
		return s[:at], s[at+1:], true
	}
	return "", s, false
}

// String returns the text form that [ParseLimit] reads. It leaves out Enforce, Former, MaxDebt and Strict.
func (l Limit) String() string {
	if l.Balance {
		return l.Name + ":" + balanceText
	}
	if l.IsSlots() {
		return l.Name + ":" + formatCount(l.Slots) + FormatPeriod(0, l.Window, cmp.Or(l.Heal, DefaultHeal))
	}
	s := l.Name + ":" + formatCount(l.Amount) + "/" + FormatPeriod(l.Period, l.Window, 0)
	if l.Burst != 0 && l.Burst != l.Amount {
		s += ":" + formatCount(l.Burst)
	}
	return s
}

// limitJSON is a limit on the wire and in the catalog.
type limitJSON struct {
	Name string `json:"name"`
	rateJSON
	// Text; left out if it is on.
	Enforce Enforce   `json:"enforce,omitempty"`
	Former  *rateJSON `json:"former,omitempty"`
	MaxDebt int64     `json:"max_debt,omitempty"`
	Returns Returns   `json:"returns,omitempty"`
}

type rateJSON struct {
	Amount int64  `json:"amount,omitempty"`
	Period string `json:"period,omitempty"` // or a window, or "balance"; none of slots
	Burst  int64  `json:"burst,omitempty"`
	Slots  *int64 `json:"slots,omitempty"`
	Heal   string `json:"heal,omitempty"`
}

// json returns a rate as in JSON.
func (r Rate) json() rateJSON {
	j := rateJSON{Amount: r.Amount, Burst: r.Burst}
	if r.Slots != 0 || r.Heal != 0 {
		j.Slots, j.Heal = &r.Slots, FormatPeriod(cmp.Or(r.Heal, DefaultHeal), calendar.Window{}, 0)
	} else {
		j.Period = FormatPeriod(r.Period, r.Window, 0)
	}
	return j
}

// rate returns the rate. Errors are about a limit, or its former rate.
func (j *rateJSON) rate(of string) (r Rate, err error) {
	r = Rate{Amount: j.Amount, Burst: j.Burst}
	if j.Slots != nil || j.Heal != "" {
		r.Heal = DefaultHeal // also of 0 slots, which are no rate either
		if j.Heal != "" {
			if r.Heal, err = parseHeal(j.Heal); err != nil {
				return r, Invalid(of+"heal", "%v", err)
			}
		}
		if j.Slots != nil {
			r.Slots = *j.Slots
		}
		if j.Period == "" {
			return r, nil
		}
	}
	if j.Period == balanceText {
		return r, nil
	}
	if r.Period, r.Window, err = parsePeriod(j.Period); err != nil {
		err = Invalid(of+"period", "%v", err)
	}
	return r, err
}

// Returns are the rule for what is given back, as text: full, or strict.
type Returns string

// The rules for what is given back.
const (
	ReturnsFull   Returns = "full"
	ReturnsStrict Returns = "strict"
)

// Strict reports whether the rule is strict. No rule is full.
func (r Returns) Strict() (bool, error) {
	if r != "" && r != ReturnsFull && r != ReturnsStrict {
		return false, Invalid("returns", "must be full or strict: %q", string(r))
	}
	return r == ReturnsStrict, nil
}

// MarshalJSON writes {"name":"rpm","amount":100,"period":"min","burst":100}, or {"name":"parallel","slots":20,
// "heal":"30s"}, with "enforce":"shadow" or "25%" if it is
// not on, "former" if there is one, "max_debt" if it is not the default, and "returns":"strict" if they are.
func (l Limit) MarshalJSON() ([]byte, error) {
	rate := l.Rate()
	j := limitJSON{Name: l.Name, rateJSON: rate.json(), Enforce: l.Enforce, MaxDebt: l.MaxDebt}
	if l.Strict {
		j.Returns = ReturnsStrict
	}
	if l.Former != (Rate{}) {
		former := l.Former.json()
		j.Former = &former
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
	about := "limit " + j.Name + ": "
	rate, err := j.rate(about)
	if err != nil {
		return err
	}
	*l = Limit{Name: j.Name, Enforce: j.Enforce, MaxDebt: j.MaxDebt, Balance: j.Period == balanceText}.with(rate)
	if !l.Balance && !l.IsSlots() {
		l.Burst = cmp.Or(l.Burst, l.Amount)
	}
	if l.Strict, err = j.Returns.Strict(); err != nil {
		return Invalid("limit "+j.Name+": returns", "must be full or strict")
	}
	if j.Former != nil {
		l.Former, err = j.Former.rate(about + "former ")
	}
	return err
}

// CountsRequests reports whether a limit of that name counts requests.
func CountsRequests(name string) bool {
	switch name {
	case "rps", "rpm", "rph", "rpd", "requests":
		return true
	}
	return false
}
