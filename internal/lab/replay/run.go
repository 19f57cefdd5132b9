package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// Config defines what to try on a log.
type Config struct {
	// Limits apply to each entity on each resource. Required. Balances are left out: a log does not show credits.
	// A line takes one slot of each limit of slots, for [ReadConfig.Held]. One that these refuse spends nothing.
	Limits []weir.Limit
	// Tokens maps limit names to the counted field of the log that they are debited. Other limits are debited 1 for
	// each line.
	Tokens map[string]string
	// Top is how many of the most refused entities are reported. The default is 10.
	Top int
	// Progress is called now and then with the share of the work done, from 0 to 1.
	Progress func(share float64)
}

// charge is what each line of the log debits from a limit: a counted field, or 1.
type charge struct {
	limit weir.Limit
	field int // index in Log.count, or -1
}

func (l *Log) charges(cfg Config) ([]charge, error) {
	var charges []charge
	for _, limit := range cfg.Limits {
		if isBalance(limit) {
			continue
		}
		c := charge{limit, -1}
		if name, ok := cfg.Tokens[limit.Name]; ok && limit.Slots > 0 {
			return nil, &weir.ConfigError{Field: "tokens", Reason: "each line takes one slot of " + limit.Name}
		} else if ok {
			if c.field = slices.Index(l.count, name); c.field < 0 {
				return nil, &weir.ConfigError{
					Field: "tokens", Reason: fmt.Sprintf("the log was read without counting %q", name),
				}
			}
		}
		charges = append(charges, c)
	}
	if len(charges) == 0 {
		return nil, &weir.ConfigError{Field: "limits", Reason: "must name at least one limit that is no balance"}
	}
	for name := range cfg.Tokens {
		if !slices.ContainsFunc(cfg.Limits, func(l weir.Limit) bool { return l.Name == name }) {
			return nil, &weir.ConfigError{Field: "tokens", Reason: fmt.Sprintf("no limit is called %q", name)}
		}
	}
	return charges, nil
}

func isBalance(l weir.Limit) bool { return l.Balance }

// amount returns what an entry debits from the charge's limit.
func (l *Log) amount(c charge, e *entry) int64 {
	if c.field < 0 {
		return 1
	}
	return l.counts[int(e.line)*len(l.count)+c.field]
}

// every is how many decisions pass between checks of the context.
const every = 8192

// Run decides every line of a log, in order of time, on a limiter whose clock is the log's. Then it searches for the
// limits that would have admitted more.
func Run(ctx context.Context, l *Log, cfg Config) (*Report, error) {
	cfg.Top = cmp.Or(cfg.Top, 10)
	if cfg.Progress == nil {
		cfg.Progress = func(float64) {}
	}
	charges, err := l.charges(cfg)
	if err != nil {
		return nil, err
	}
	tried := slices.DeleteFunc(slices.Clone(cfg.Limits), isBalance)
	var notes []string
	if len(tried) < len(cfg.Limits) {
		notes = append(notes, "balances are left out: what they refuse depends on credits, which a log does not show")
	}
	cfg.Limits = tried
	t := newTally(l, cfg)
	if err := l.decide(ctx, cfg, charges, t); err != nil {
		return nil, err
	}
	report := t.report()
	report.Notes = notes
	for i, c := range charges {
		found, err := l.needed(ctx, c, func(share float64) {
			cfg.Progress((1 + (float64(i)+share)/float64(len(charges))) / 2)
		})
		if err != nil {
			return nil, err
		}
		report.Needed = append(report.Needed, found...)
	}
	return report, nil
}

// decide runs the log through a limiter.
func (l *Log) decide(ctx context.Context, cfg Config, charges []charge, t *tally) error {
	now := l.entries[0].at
	st := memory.New(&memory.Config{
		Now:        func() time.Time { return time.Unix(0, now) },
		MaxBuckets: max(memory.DefaultMaxBuckets, len(l.entries)),
	})
	lim, err := weir.New(weir.Config{
		Store: st, CacheTTL: 24 * time.Hour, CacheEntries: max(200_000, 4*len(l.entities.texts)),
	})
	if err != nil {
		return err
	}
	defer lim.Close()
	slots, rates := splitSlots(cfg.Limits)
	if len(rates) > 0 {
		if err := admin.New(lim).Limits.Set(ctx, admin.Scope{}, rates...); err != nil {
			return err
		}
	}
	charges = slices.DeleteFunc(slices.Clone(charges), func(c charge) bool { return c.limit.Slots > 0 })
	tokens := make(weir.Tokens, len(charges))
	for i := range l.entries {
		if i%every == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			cfg.Progress(float64(i) / float64(len(l.entries)) / 2)
		}
		e := &l.entries[i]
		now = e.at
		for _, c := range charges {
			tokens[c.limit.Name] = l.amount(c, e)
		}
		req := weir.Request{
			Entity: l.entities.texts[e.entity], Resource: l.resources.texts[e.resource], Tokens: tokens,
		}
		err := slots.refused(e)
		if err == nil && len(rates) > 0 {
			_, err = lim.Acquire(ctx, req)
		}
		slots.take(e, err)
		if err := t.add(e, err); err != nil {
			return fmt.Errorf("decide line %d of %d: %w", i+1, len(l.entries), err)
		}
	}
	return nil
}

// tally counts the results of the decisions.
type tally struct {
	log       *Log
	cfg       Config
	requests  []int // by entity
	refused   []int
	series    []Interval
	width     time.Duration
	total     int
	tooLarge  int
	refusedBy []LimitCount
}

func newTally(l *Log, cfg Config) *tally {
	t := &tally{
		log: l, cfg: cfg, requests: make([]int, len(l.entities.texts)), refused: make([]int, len(l.entities.texts)),
	}
	t.width, t.series = intervals(l.entries[0].at, l.entries[len(l.entries)-1].at)
	for _, limit := range cfg.Limits {
		t.refusedBy = append(t.refusedBy, LimitCount{Limit: limit.Name})
	}
	return t
}

// add counts a decision; it returns err if that is not a refusal.
func (t *tally) add(e *entry, err error) error {
	t.requests[e.entity]++
	slot := &t.series[(e.at-t.series[0].Start.UnixNano())/int64(t.width)]
	slot.Requests++
	var exceeded *weir.ExceededError
	var burst *weir.BurstError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exceeded):
		for _, s := range exceeded.Statuses {
			if s.Refused {
				t.blame(s.Limit)
			}
		}
	case errors.As(err, &burst):
		t.tooLarge++
		t.blame(burst.Limit)
	default:
		return err
	}
	t.refused[e.entity]++
	slot.Refused++
	t.total++
	return nil
}

func (t *tally) blame(limit string) {
	for i := range t.refusedBy {
		if t.refusedBy[i].Limit == limit {
			t.refusedBy[i].Refused++
		}
	}
}
