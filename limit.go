package weir

import (
	"cmp"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Limit allows Amount tokens per Period, issued evenly, of which at most Burst can be spent at once. Over any stretch
// of time it admits at most Burst plus the tokens issued in that time, exactly.
//
// Amount and Burst are whole tokens, at least 1. Period is at most 366 days. A rate above about 4 million tokens a
// second is refused: count in a coarser unit.
type Limit struct {
	Name   string        // the name by which requests refer to the limit: "rpm"
	Amount int64         // tokens per Period
	Period time.Duration // the time in which Amount is issued
	Burst  int64         // tokens that can be spent at once; 0 means Amount
	// Enforce selects the entities that the limit refuses. Other processes may see a change of Enforce as late as
	// [Config.CacheTTL], unlike a change of Amount, Period or Burst. Defaults to all.
	Enforce Enforce
	// Former is the rate for the entities outside a percentage: they are then refused, too. Use it to roll out a change
	// in steps. The zero value means none; a limit without a percentage has none.
	Former Rate
}

// Rate is how many tokens a limit allows.
type Rate struct {
	Amount int64         // tokens per Period
	Period time.Duration // the time in which Amount is issued
	Burst  int64         // tokens that can be spent at once
}

// Rate returns the limit's rate, which can be the Former of another limit.
func (l Limit) Rate() Rate { return Rate{l.Amount, l.Period, cmp.Or(l.Burst, l.Amount)} }

// PerSecond returns a limit of amount tokens per second, with a burst of the same amount.
func PerSecond(name string, amount int64) Limit { return per(name, amount, time.Second) }

// PerMinute returns a limit of amount tokens per minute, with a burst of the same amount.
func PerMinute(name string, amount int64) Limit { return per(name, amount, time.Minute) }

// PerHour returns a limit of amount tokens per hour, with a burst of the same amount.
func PerHour(name string, amount int64) Limit { return per(name, amount, time.Hour) }

// PerDay returns a limit of amount tokens per 24 hours, with a burst of the same amount.
func PerDay(name string, amount int64) Limit { return per(name, amount, 24*time.Hour) }

func per(name string, amount int64, period time.Duration) Limit {
	return Limit{Name: name, Amount: amount, Period: period, Burst: amount}
}

// WithBurst returns the limit with another burst. The sustained rate does not change. A burst below the amount smooths
// traffic; a burst above it lets unused tokens accumulate.
func (l Limit) WithBurst(burst int64) Limit {
	l.Burst = burst
	return l
}

// MaxTokens is the largest burst, and the largest amount in one request.
const MaxTokens = record.MaxTokens

// Enforce selects the entities that a limit refuses: all (the zero value), none ([EnforceShadow]), or a percentage of
// them from 1 to 99. For the others, the limit is in shadow: it counts what it would have admitted, and reports what it
// would have refused.
//
// Whether an entity belongs to a percentage depends only on its id and the limit's name: it does if the first eight
// bytes of SHA-256(id, a zero byte, name), as a big-endian number modulo 100, are below the percentage. The result is
// the same in every process, and the entities of a smaller percentage are among those of a larger one.
type Enforce int8

// Values of Enforce other than percentages.
const (
	EnforceOn     Enforce = 0
	EnforceShadow Enforce = -1
)

// ParseEnforce parses on, shadow, or a percentage from 1% to 99%.
func ParseEnforce(text string) (Enforce, error) {
	e, err := record.ParseEnforce(text)
	return Enforce(e), publicError(err)
}

// String returns the text that [ParseEnforce] reads.
func (e Enforce) String() string { return record.Enforce(e).String() }

// MarshalText returns what String returns.
func (e Enforce) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText parses what [ParseEnforce] does.
func (e *Enforce) UnmarshalText(text []byte) (err error) {
	*e, err = ParseEnforce(string(text))
	return err
}

// WithEnforce returns the limit with the given Enforce.
func (l Limit) WithEnforce(e Enforce) Limit {
	l.Enforce = e
	return l
}

// EnforcedFor reports whether the limit refuses requests of an entity, that is, whether it is not in shadow for it.
func (l Limit) EnforcedFor(entity string) bool {
	return record.Enforce(l.Enforce).Covers(entity, l.Name)
}

// ParseLimit reads the text form of a limit: name:amount/[N]unit[:burst], where unit is ms, s, min, h, d or w (or a
// longer name of one of these) and amount and burst may end in K (thousand) or M (million).
//
//	rpm:100/min   tpm:50K/min:75K   jobs:3/10min   uploads:1M/30d
func ParseLimit(text string) (Limit, error) {
	l, err := record.ParseLimit(text)
	return publicLimit(l), publicError(err)
}

// String returns the text form that [ParseLimit] reads. It leaves out Enforce and Former.
func (l Limit) String() string { return l.record().String() }

// MarshalJSON writes {"name":"rpm","amount":100,"period":"min","burst":100}, with "enforce":"shadow" or "25%" if it is
// not on, and "former" if there is one.
func (l Limit) MarshalJSON() ([]byte, error) { return l.record().MarshalJSON() }

// UnmarshalJSON reads what [Limit.MarshalJSON] writes, or the text form as a string. It does not check the bounds.
func (l *Limit) UnmarshalJSON(data []byte) error {
	var r record.Limit
	if err := r.UnmarshalJSON(data); err != nil {
		return publicError(err)
	}
	*l = publicLimit(r)
	return nil
}

func (l Limit) record() record.Limit {
	return record.Limit{
		Name: l.Name, Amount: l.Amount, Period: l.Period, Burst: l.Burst,
		Enforce: record.Enforce(l.Enforce), Former: record.Rate(l.Former),
	}
}

func publicLimit(l record.Limit) Limit {
	return Limit{
		Name: l.Name, Amount: l.Amount, Period: l.Period, Burst: l.Burst, Enforce: Enforce(l.Enforce),
		Former: Rate(l.Former),
	}
}

// Validate reports what is wrong with a limit, as a [*ConfigError].
func (l Limit) Validate() error {
	_, err := l.record().Validate()
	return publicError(err)
}

func limitOf(l *store.Limit) Limit {
	return Limit{Name: l.Name, Amount: l.Amount / 1000, Period: l.Period, Burst: l.Burst / 1000}
}

func paramsOf(l *store.Limit) clock.Params {
	return clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
}
