package replay

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/lab/report"
)

// targets are the admitted shares to search limits for, in thousandths.
var targets = []int{990, 999}

// trial is one limit's part of a log, laid out for deciding it repeatedly: the lines of one bucket together, the
// busiest bucket first. It decides with the token clock alone, which for one limit is all that the limiter does.
type trial struct {
	at       []int64 // nanoseconds since clock.Epoch; of slots, since 1970
	ends     []int64 // of slots: when they are given back
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
	t := &trial{requests: len(l.entries)}
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
	if c.limit.Slots > 0 {
		t.ends = make([]int64, from)
	}
	for i := range l.entries {
		b := &t.buckets[owner[i]]
		t.at[b.to] = clock.Nanos(time.Unix(0, l.entries[i].at))
		if t.ends != nil {
			t.at[b.to], t.ends[b.to] = l.entries[i].at, l.entries[i].ends()
		}
		t.amount[b.to] = report.Milli(l.amount(c, &l.entries[i]))
		b.total = clock.Add(b.total, t.amount[b.to])
		b.to++
	}
	slices.SortFunc(t.buckets, func(a, b lines) int { return cmp.Compare(b.total, a.total) })
	return t
}

// admitted decides all lines under a limit and returns how many pass. It skips buckets that never spend more
// than the burst in total, because they are never refused.
func (t *trial) admitted(limit weir.Limit) int {
	p := report.Params(limit)
	n := t.requests
	for _, b := range t.buckets {
		if b.total <= p.Burst {
			break
		}
		level := int64(math.MinInt64) // full
		var now holding
		for i := b.from; i < b.to && limit.Slots > 0; i++ {
			if !now.free(t.at[i], limit.Slots) {
				n--
				continue
			}
			now.take(t.ends[i])
		}
		if limit.Slots > 0 {
			continue
		}
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

// needed searches for the smallest amount of a limit, on its own, that admits each of the targets.
func (l *Log) needed(ctx context.Context, c charge, progress func(float64)) ([]Need, error) {
	t := l.trial(c)
	var found []Need
	low := int64(0) // admits too few
	for i, target := range targets {
		want := (t.requests*target + 999) / 1000
		step := 0
		enough := func(limit weir.Limit) bool {
			progress((float64(i) + min(1, float64(step)/30)) / float64(len(targets)))
			step++
			return ctx.Err() != nil || t.admitted(limit) >= want
		}
		need := Need{Percent: float64(target) / 10, Name: c.limit.Name}
		need.Limit = report.Smallest(c.limit, low, enough)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if need.Limit != nil {
			low = max(need.Limit.Amount, need.Limit.Slots) - 1
			need.Admitted = t.admitted(*need.Limit)
		}
		found = append(found, need)
	}
	return found, nil
}
