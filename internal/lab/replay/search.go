package replay

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
)

// targets are the admitted shares to search limits for, in thousandths.
var targets = []int{990, 999}

// trial is one limit's part of a log, laid out for deciding it repeatedly: the lines of one bucket together, the
// busiest bucket first. It decides with the token clock alone, which for one limit is all that the limiter does.
type trial struct {
	limit    weir.Limit
	at       []int64 // nanoseconds since clock.Epoch
	amount   []int64 // millitokens
	buckets  []lines
	requests int
}

// lines are the lines of one bucket.
type lines struct {
	from, to int
	total    int64 // millitokens
}

func (l *Log) trial(c charge) *trial {
	t := &trial{limit: c.limit, requests: len(l.entries)}
	index := make(map[[2]uint32]int)
	owner := make([]uint32, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		key := [2]uint32{e.entity, e.resource}
		b, ok := index[key]
		if !ok {
			b = len(t.buckets)
			index[key] = b
			t.buckets = append(t.buckets, lines{})
		}
		owner[i] = uint32(b)
		t.buckets[b].to++
	}
	from := 0
	for b := range t.buckets {
		n := t.buckets[b].to
		t.buckets[b].from, t.buckets[b].to = from, from
		from += n
	}
	t.at, t.amount = make([]int64, from), make([]int64, from)
	for i := range l.entries {
		b := &t.buckets[owner[i]]
		t.at[b.to] = clock.Nanos(time.Unix(0, l.entries[i].at))
		t.amount[b.to] = milli(l.amount(c, &l.entries[i]))
		b.total = clock.Add(b.total, t.amount[b.to])
		b.to++
	}
	slices.SortFunc(t.buckets, func(a, b lines) int { return cmp.Compare(b.total, a.total) })
	return t
}

// admitted decides all lines under another amount and returns how many pass. It skips buckets that never spend more
// than the burst in total, because they are never refused.
func (t *trial) admitted(amount int64) int {
	limit := t.scaled(amount)
	p := params(limit)
	n := t.requests
	for _, b := range t.buckets {
		if b.total <= p.Burst {
			break
		}
		level := int64(math.MinInt64) // full
		for i := b.from; i < b.to; i++ {
			after, ok := p.Debit(level, t.at[i], t.amount[i])
			if !ok {
				n--
			}
			level = after
		}
	}
	return n
}

// scaled returns the limit with another amount, and the burst scaled in proportion.
func (t *trial) scaled(amount int64) weir.Limit {
	l := t.limit
	burst := cmp.Or(l.Burst, l.Amount)
	l.Burst = max(1, min(clock.MulDivFloor(burst, amount, l.Amount), weir.MaxTokens+1)) // valid checks the range
	l.Amount = amount
	return l
}

func (t *trial) valid(amount int64) bool {
	l := t.scaled(amount)
	return amount <= weir.MaxTokens && l.Burst <= weir.MaxTokens && params(l).Check() == nil
}

// needed searches for the smallest amount of a limit, on its own, that admits each of the targets, by doubling and
// halving.
func (l *Log) needed(ctx context.Context, c charge, progress func(float64)) ([]Need, error) {
	t := l.trial(c)
	var found []Need
	low := int64(0) // admits too few
	for i, target := range targets {
		want := (t.requests*target + 999) / 1000
		step := 0
		enough := func(amount int64) bool {
			progress((float64(i) + min(1, float64(step)/30)) / float64(len(targets)))
			step++
			return t.admitted(amount) >= want
		}
		need := Need{Percent: float64(target) / 10, Name: c.limit.Name}
		high := max(low+1, c.limit.Amount)
		for t.valid(high) && !enough(high) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			low, high = high, high*2
		}
		for high-low > 1 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if mid := low + (high-low)/2; t.valid(mid) && !enough(mid) {
				low = mid
			} else {
				high = mid
			}
		}
		if t.valid(high) {
			limit := t.scaled(high)
			need.Limit, need.Admitted = &limit, t.admitted(high)
		}
		found = append(found, need)
	}
	return found, nil
}

func params(l weir.Limit) clock.Params {
	return clock.Params{Amount: milli(l.Amount), Period: int64(l.Period), Burst: milli(l.Burst)}
}

// milli converts tokens to millitokens. More than can be spent at once stays more.
func milli(tokens int64) int64 { return min(tokens, weir.MaxTokens+1) * 1000 }
