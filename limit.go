package weir

import (
	"cmp"
	"time"

	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/policy/record"
)

// Limit is a rate, a quota, a balance, or one of slots.
//
// A rate allows Amount tokens per Period, issued evenly, of which at most Burst can be spent at once. Over any stretch
// of time it admits at most Burst plus the tokens issued in that time, exactly. A token given back counts as unspent
// from then on, so that it can be spent again at once; see Strict.
//
// A quota has a Window of the calendar instead of a Period. It admits at most Amount in each window, exactly. What is
// left does not carry over; a debt does. A token given back after its window gives nothing.
//
// A balance has prepaid credits: it admits what was credited, and no more. It has no Amount, Period, Burst and Window.
//
// A limit of Slots admits what is held at once: at most so many slots are taken and not given back, at every instant,
// in all processes together. Those of holders that are gone come back within twice Heal and 4 seconds. It has only a
// Name, Slots, Heal and Enforce. If Slots is lowered, nobody loses one, and none is taken until enough were given back.
//
// Amount and Burst are whole tokens, at least 1. Period is at most 366 days. A rate above about 4 million tokens a
// second, or a quota that could not be counted until 2060, is refused: count in a coarser unit.
type Limit struct {
	Name    string        // the name by which requests refer to the limit: "rpm"
	Amount  int64         // tokens per Period or Window
	Period  time.Duration // the time in which Amount is issued evenly
	Burst   int64         // tokens that can be spent at once; 0 means Amount, which a quota must have
	Window  Window        // of a quota: the windows of the calendar in which Amount can be spent
	Balance bool          // spends credits
	Slots   int64         // that can be held at once
	Heal    time.Duration // in which slots are renewed: from 16 seconds to 1 hour; 0 means 30 seconds
	// Enforce selects the entities that the limit refuses. Other processes may see a change of Enforce as late as
	// [Config.CacheTTL], unlike a change of Amount, Period or Burst. Defaults to all.
	Enforce Enforce
	// Former is the rate for the entities outside a percentage: they are then refused, too. Use it to roll out a change
	// in steps. The zero value means none; a limit without a percentage has none.
	Former Rate
	// MaxDebt is how far an adjustment may bring the limit into debt, in tokens: what exceeds that is not debited, and
	// is a [*DebtError]. 0 means ten times the burst, at most [MaxTokens].
	MaxDebt int64
	// Strict bounds the tokens that are kept: over any stretch of time, leases keep no more than Burst and the tokens
	// issued in that time, no matter when others are given back. A return then gives back only what the limit has not
	// issued again since the debit, and nothing once the limits of the bucket have changed. Off by default: a token
	// given back then counts as unspent from then on.
	Strict bool
}

// Rate is how much a limit allows: Amount per Period, of which Burst can be spent at once, Amount in each Window, or so
// many Slots at once.
type Rate = record.Rate

// Window is a kind of windows of the calendar, such as month@Europe/Berlin; [ParseLimit] describes the text form, which
// UnmarshalText reads and String returns. The zero value is none. Windows that are written alike are equal.
type Window = calendar.Window

// Rate returns the limit's rate, which can be the Former of another limit.
func (l Limit) Rate() Rate {
	return l.WithBurst(cmp.Or(l.Burst, l.Amount)).record().Rate()
}

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
type Enforce = record.Enforce

// Values of Enforce other than percentages.
const (
	EnforceOn     = record.EnforceOn
	EnforceShadow = record.EnforceShadow
)

// ParseEnforce parses on, shadow, or a percentage from 1% to 99%. String and MarshalText return what it reads.
func ParseEnforce(text string) (Enforce, error) {
	e, err := record.ParseEnforce(text)
	return e, publicError(err)
}

// WithEnforce returns the limit with the given Enforce.
func (l Limit) WithEnforce(e Enforce) Limit {
	l.Enforce = e
	return l
}

// EnforcedFor reports whether the limit refuses requests of an entity, that is, whether it is not in shadow for it.
func (l Limit) EnforcedFor(entity string) bool {
	return l.Enforce.Covers(entity, l.Name)
}

// ParseLimit reads the text form of a limit: name:amount/[N]unit[:burst], where unit is ms, s, min, h, d or w (or a
// longer name of one of these) and amount and burst may end in K (thousand) or M (million). A quota has
// unit[+anchor]@zone instead: hour, day, week, month, quarter or year, its first day (of a month 1 to 31, or its last
// one; of a week mon to sun), and a zone's name in the IANA database; for hours, UTC. A balance is name:balance, slots
// are name:slots[/heal].
//
//	rpm:100/min   tpm:50K/10min:75K   usd:5000/month@Europe/Berlin   credits:balance   parallel:20slots/45s
func ParseLimit(text string) (Limit, error) {
	l, err := record.ParseLimit(text)
	return Limit(l), publicError(err)
}

// String returns the text form that [ParseLimit] reads. It leaves out Enforce, Former, MaxDebt and Strict.
func (l Limit) String() string { return l.record().String() }

// MarshalJSON writes {"name":"rpm","amount":100,"period":"min","burst":100}, with "enforce":"shadow" or "25%" if it is
// not on, "former" if there is one, "max_debt" if it is not the default, and "returns":"strict" if Strict is set; of
// slots, {"name":"parallel","slots":20,"heal":"30s"}.
func (l Limit) MarshalJSON() ([]byte, error) { return l.record().MarshalJSON() }

// UnmarshalJSON reads what [Limit.MarshalJSON] writes, or the text form as a string. Of an object, it does not check
// the bounds.
func (l *Limit) UnmarshalJSON(data []byte) error {
	var r record.Limit
	if err := r.UnmarshalJSON(data); err != nil {
		return publicError(err)
	}
	*l = Limit(r)
	return nil
}

func (l Limit) record() record.Limit { return record.Limit(l) }

// Validate reports what is wrong with a limit, as a [*ConfigError].
func (l Limit) Validate() error {
	_, err := l.record().Validate()
	return publicError(err)
}
