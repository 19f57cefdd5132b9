package redis_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
	"github.com/weirlimits/weir/store/storetest"
)

// limits draws limits within the bounds of the arithmetic, often at those bounds.
func limits(name string, override bool) *rapid.Generator[*store.Limit] {
	size := func(most int64) *rapid.Generator[int64] {
		return rapid.OneOf(rapid.Int64Range(1, most), rapid.SampledFrom([]int64{1, 999, 1000, 60_000, 1_000_000_007, most - 1, most}), rapid.Map(rapid.IntRange(0, 62), func(n int) int64 {
			return min(most, 1<<n)
		}))
	}
	periods := rapid.OneOf(size(int64(clock.MaxPeriod)), rapid.SampledFrom([]int64{int64(time.Second), int64(time.Minute), int64(time.Hour), int64(24 * time.Hour)}))
	windows := rapid.SampledFrom([]string{
		"hour@UTC", "day@UTC", "day@Africa/Cairo", "day@America/Santiago", "week+sun@Asia/Kolkata", "month@Europe/Berlin",
		"month+31@Europe/Berlin", "quarter@America/New_York", "year@Pacific/Apia",
	})
	return rapid.Custom(func(t *rapid.T) *store.Limit {
		switch kind := rapid.IntRange(0, 7).Draw(t, "kind"); {
		case kind == 0 && !override:
			return &store.Limit{Name: name, Burst: clock.Balance.Burst}
		case kind < 4:
			l := &store.Limit{Name: name, Override: override, Amount: size(clock.MaxBurst).Draw(t, "amount")}
			var err error
			if l.Window, err = calendar.Parse(windows.Draw(t, "window")); err != nil {
				t.Fatal(err)
			}
			for l.Burst = l.Amount; l.Params().Check() != nil; l.Burst = l.Amount {
				l.Amount /= 3
			}
			return l
		}
		l := &store.Limit{Name: name, Override: override, Period: time.Duration(periods.Draw(t, "period")), Burst: size(clock.MaxBurst).Draw(t, "burst")}
		l.Amount = size(1<<57).Draw(t, "amount")
		for (clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}).Check() != nil {
			l.Amount = max(1, l.Amount/3)
			if l.Amount == 1 {
				l.Period = max(l.Period, 1000)
			}
		}
		return l
	})
}

func times() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64(), rapid.Int64Range(0, 1<<58), rapid.Int64Range(-1<<40, 1<<40),
		rapid.SampledFrom([]int64{0, 1, -1, math.MaxInt64, math.MinInt64 + 1, math.MinInt64, int64(time.Hour), -int64(time.Hour), 1 << 53, 2097152 * int64(time.Hour), 1048576*int64(time.Hour) - 1}),
		rapid.Map(rapid.Int64Range(-1<<21, 1<<21), func(h int64) int64 { return h * int64(time.Hour) }),
	)
}

// The scripts' clocks equal those of package clock, in both ways of computing them, for every limit and time.
func TestClockParity(t *testing.T) {
	t.Parallel()
	s := open(t, redis.Config{Address: "redis://" + shared(t).Addr, Prefix: prefix(), CallTimeout: 10 * time.Second})
	limit := limits("x", false)
	rapid.Check(t, func(rt *rapid.T) {
		rs := make([]redis.Reading, 200)
		for i := range rs {
			l := limit.Draw(rt, "limit")
			now := times().Draw(rt, "now")
			if p := l.Params(); i%2 == 0 { // where the clock has just ticked or is about to
				now = p.Full(p.Clock(now)) - int64(i%4/2)
			}
			rs[i] = redis.Reading{Limit: l, Now: now}
		}
		if err := s.Clocks(t.Context(), rs); err != nil {
			rt.Fatal(err)
		}
		for _, r := range rs {
			if want := r.Limit.Params().Clock(r.Now); r.Fast != want || r.Exact != want {
				rt.Fatalf("%+v at %d: clock %d, exactly %d, want %d", *r.Limit, r.Now, r.Fast, r.Exact, want)
			}
		}
	})
}

// Whatever happens to buckets, the scripts decide, and leave the buckets, exactly as the store in memory does, which uses
// the arithmetic of package clock.
func TestParity(t *testing.T) {
	t.Parallel()
	addr := shared(t).Addr
	rapid.Check(t, func(rt *rapid.T) {
		begin, still := min(times().Draw(rt, "begin"), 1<<60), rapid.Bool().Draw(rt, "still")
		if still {
			begin = max(begin, 0)
		}
		fake := storetest.NewClock(clock.Time(begin))
		ours, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + addr, Prefix: prefix(), Now: fake.Now, Connections: 1, CallTimeout: 10 * time.Second})
		if err != nil {
			rt.Fatal(err)
		}
		defer ours.Close()
		model := memory.New(&memory.Config{Now: fake.Now, MaxUsage: -1})
		defer model.Close()
		p := &pairOf{T: rt, ours: ours, model: model, now: fake.Now, still: still}
		p.trace(fake)
	})
}

// A debt of 2^62 millitokens or more does not fit a limit that becomes a balance, and is cut off alike in both stores.
func TestParityLargestDebt(t *testing.T) {
	t.Parallel()
	fake := storetest.NewClock(clock.Epoch)
	ours := open(t, redis.Config{Address: "redis://" + shared(t).Addr, Prefix: prefix(), Now: fake.Now, CallTimeout: 10 * time.Second})
	model := memory.New(&memory.Config{Now: fake.Now, MaxUsage: -1})
	defer model.Close()
	rate := &store.Limit{Name: "rpm", Amount: 1, Period: time.Hour, Burst: 1}
	for i, debt := range []int64{0, 1<<62 - 1, 1 << 62, 1<<62 + 2, clock.MaxLevel - 1} {
		b := store.Bucket{Namespace: "n", Entity: fmt.Sprint(i), Resource: "r"}
		for _, s := range []store.Store{ours, model} {
			for epoch, c := range []store.Charge{{Limit: rate, Amount: debt + 1, Force: true}, {Limit: store.Balance("rpm"), Force: true}} {
				out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{{Bucket: b, Epoch: uint64(epoch), Charges: []store.Charge{c}}}})
				if err != nil {
					t.Fatal(err)
				}
				if want := min(debt, 1<<62-1); epoch == 1 && out.Levels[0].Level != want {
					t.Errorf("%T: a debt of %d becomes %d, want %d", s, debt, out.Levels[0].Level, want)
				}
			}
		}
	}
}

type pairOf struct {
	*rapid.T
	ours   *redis.Store
	model  store.Store
	now    func() time.Time
	failed bool // a call failed in both; each store may have followed new limits up to a different point
	still  bool // time stands still, and limits may be of slots: the stores differ in when those heal
	holds  []held
}

// held is what a take has taken of a limit of slots in both stores.
type held struct {
	bucket      store.Bucket
	name        string
	ours, model *store.Hold
}

// trace creates some buckets, so that neither store forgets one, and then performs random operations.
func (p *pairOf) trace(fake *storetest.Clock) {
	entities := []string{"a", "b", "c"}
	epochs := make([]uint64, len(entities))
	inForce, former := make([][]*store.Limit, len(entities)), make([][]*store.Limit, len(entities))
	overrides := []*store.Limit{limits("rpm", true).Draw(p.T, "override"), limits("o", true).Draw(p.T, "override")}
	draw := func() []*store.Limit {
		var ls []*store.Limit
		for _, name := range []string{"rpm", "tpm", "x"}[:rapid.IntRange(1, 3).Draw(p.T, "limits")] {
			if p.still && rapid.IntRange(0, 2).Draw(p.T, "slots") == 0 {
				ls = append(ls, store.Slots(name, rapid.Int64Range(1, 10_000).Draw(p.T, "slots"), heal))
				continue
			}
			ls = append(ls, limits(name, false).Draw(p.T, name))
		}
		return rapid.Permutation(ls).Draw(p.T, "order")
	}
	debit := func(i int, settle bool) store.Debit {
		d := store.Debit{Bucket: store.Bucket{Namespace: "n", Entity: entities[i], Resource: "r"}, Epoch: epochs[i]}
		ls := inForce[i]
		if over := rapid.IntRange(0, 5).Draw(p.T, "overrides"); over == 0 {
			ls = overrides
		} else if over == 1 {
			ls = append(ls[:len(ls):len(ls)], overrides[0])
		} else if over == 2 && settle && former[i] != nil {
			ls = former[i]
		}
		for _, l := range ls {
			c := p.charge(l, settle)
			if settle && l.IsSlots() {
				c.Hold = p.hold(d.Bucket, l.Name)
			}
			d.Charges = append(d.Charges, c)
		}
		return d
	}
	for i := range entities {
		inForce[i] = draw()
		d := store.Debit{Bucket: store.Bucket{Namespace: "n", Entity: entities[i], Resource: "r"}}
		for _, l := range inForce[i] {
			d.Charges = append(d.Charges, store.Charge{Limit: l, Amount: 1, Force: true})
		}
		p.take(d)
	}
	for range rapid.IntRange(1, 25).Draw(p.T, "steps") {
		if p.failed {
			return
		}
		if rapid.IntRange(0, 3).Draw(p.T, "elsewhere") == 0 { // the process expects another time than the server's
			p.ours.Expect(rapid.Int64().Draw(p.T, "ahead") >> rapid.IntRange(0, 62).Draw(p.T, "shift"))
		}
		var some []int
		for i := range entities {
			if rapid.Bool().Draw(p.T, "in") {
				some = append(some, i)
			}
		}
		switch rapid.IntRange(0, 9).Draw(p.T, "step") {
		case 0:
			now := clock.Nanos(fake.Now())
			by := times().Draw(p.T, "by") >> rapid.IntRange(0, 62).Draw(p.T, "shift")
			if sum := now + by; !p.still && (sum > now) == (by > 0) && sum < math.MaxInt64-1<<40 {
				fake.Set(clock.Time(sum))
			}
		case 6: // to where a clock has just ticked or is about to
			l := inForce[rapid.IntRange(0, 2).Draw(p.T, "ticks")][0].Params()
			on := rapid.SampledFrom([]int64{0, 1, 1000, l.Burst, l.Burst - 1}).Draw(p.T, "on")
			if now := l.Full(l.Clock(clock.Nanos(fake.Now()))+on) - rapid.Int64Range(0, 1).Draw(p.T, "early"); !p.still && now < math.MaxInt64-1<<40 {
				fake.Set(clock.Time(now))
			}
		case 7:
			p.credit(store.Credit{
				Bucket: store.Bucket{Namespace: "n", Entity: rapid.SampledFrom(entities).Draw(p.T, "credited"), Resource: "r"},
				Limit:  rapid.SampledFrom([]string{"rpm", "tpm", "x", "y"}).Draw(p.T, "balance"),
				Amount: rapid.SampledFrom([]int64{1, 1, 1, 1000, clock.MaxBurst, 1 << 32}).Draw(p.T, "credits"),
				ID:     rapid.SampledFrom([]string{"a", "b", "c"}).Draw(p.T, "id"),
			})
		case 1:
			i := rapid.IntRange(0, 2).Draw(p.T, "changed")
			inForce[i], former[i] = draw(), inForce[i]
			if rapid.IntRange(0, 3).Draw(p.T, "stale") > 0 {
				epochs[i]++
			}
		case 2:
			var ds []store.Debit
			for _, i := range some {
				ds = append(ds, debit(i, true))
			}
			if len(ds) > 0 {
				p.settle(ds...)
			}
		default:
			var ds []store.Debit
			for _, i := range some {
				ds = append(ds, debit(i, false))
			}
			if len(ds) > 0 {
				p.take(ds...)
			}
		}
		if !p.failed {
			p.compare(entities)
		}
	}
}

func (p *pairOf) charge(l *store.Limit, settle bool) store.Charge {
	amount := rapid.OneOf(rapid.Int64Range(0, l.Burst), rapid.SampledFrom([]int64{0, 1, l.Burst - 1, l.Burst, l.Burst + 1}), rapid.Int64Range(0, 1<<62)).Draw(p.T, "amount")
	c := store.Charge{Limit: l, Amount: amount}
	if settle {
		if rapid.Bool().Draw(p.T, "back") {
			c.Amount = -c.Amount
		}
		c.Strict = rapid.Bool().Draw(p.T, "strict")
		if rapid.Bool().Draw(p.T, "bounded") {
			c.MaxDebt = rapid.Int64Range(0, l.Burst).Draw(p.T, "debt")
		}
		return c
	}
	switch rapid.IntRange(0, 5).Draw(p.T, "flag") {
	case 0:
		c.Force = true
	case 1:
		c.Shadow = true
	}
	return c
}

func (p *pairOf) take(debits ...store.Debit) {
	got, err := p.ours.Take(p.Context(), store.Take{Debits: debits})
	want, werr := p.model.Take(p.Context(), store.Take{Debits: debits})
	p.same("take", debits, got, want, err, werr)
}

func (p *pairOf) settle(debits ...store.Debit) {
	s := store.Settle{Debits: debits}
	if rapid.Bool().Draw(p.T, "dated") {
		s.Since = p.now().Add(-time.Duration(rapid.Int64Range(0, int64(100*24*time.Hour)).Draw(p.T, "since")))
	}
	got, err := p.ours.Settle(p.Context(), s)
	s.Debits = slices.Clone(debits)
	for i := range s.Debits {
		charges := slices.Clone(debits[i].Charges)
		for j := range charges {
			if at := slices.IndexFunc(p.holds, func(h held) bool { return h.ours == charges[j].Hold }); at >= 0 {
				charges[j].Hold = p.holds[at].model
			}
		}
		s.Debits[i].Charges = charges
	}
	want, werr := p.model.Settle(p.Context(), s)
	p.same("settle", debits, got, want, err, werr)
}

func (p *pairOf) credit(c store.Credit) {
	got, err := p.ours.Credit(p.Context(), c)
	want, werr := p.model.Credit(p.Context(), c)
	if fmt.Sprint(err) != fmt.Sprint(werr) || err == nil && (got.Before != want.Before || got.Level != want.Level || !got.At.Equal(want.At)) {
		p.Fatalf("credit %+v: %+v, %v, want %+v, %v", c, got, err, want, werr)
	}
}

func (p *pairOf) same(what string, debits []store.Debit, got, want store.Outcome, err, werr error) {
	p.Helper()
	if err != nil || werr != nil {
		for _, known := range []error{store.ErrStaleLimits, store.ErrTooManyOverrides, store.ErrOverflow, store.ErrNotBalance} {
			if errors.Is(err, known) && errors.Is(werr, known) {
				p.failed = true
				return
			}
		}
		p.Fatalf("%s %+v: error %v, want %v", what, debits, err, werr)
	}
	if got.Allowed != want.Allowed || !got.At.Equal(want.At) || len(got.Levels) != len(want.Levels) {
		p.Fatalf("%s %+v: %+v, want %+v", what, debits, got, want)
	}
	for i, l := range got.Levels {
		w := want.Levels[i]
		if *l.Limit != *w.Limit || l.Level != w.Level || l.Refused != w.Refused || l.Left != w.Left ||
			(l.Hold == nil) != (w.Hold == nil) {
			p.Fatalf("%s %+v: level %d is %+v of %+v, want %+v of %+v", what, debits, i, l, *l.Limit, w, *w.Limit)
		}
		if n := len(debits[0].Charges); l.Hold != nil {
			at := 0
			for k := i; k >= n; n = len(debits[at].Charges) {
				k, at = k-n, at+1
			}
			p.holds = append(p.holds, held{debits[at].Bucket, l.Limit.Name, l.Hold, w.Hold})
		}
	}
}

// hold returns what was taken of a limit before, or nothing.
func (p *pairOf) hold(b store.Bucket, name string) *store.Hold {
	var of []*store.Hold
	for _, h := range p.holds {
		if h.bucket == b && h.name == name {
			of = append(of, h.ours)
		}
	}
	if len(of) == 0 || rapid.IntRange(0, 3).Draw(p.T, "no hold") == 0 {
		return nil
	}
	return rapid.SampledFrom(of).Draw(p.T, "hold")
}

func (p *pairOf) compare(entities []string) {
	p.Helper()
	var buckets []store.Bucket
	for _, e := range entities {
		buckets = append(buckets, store.Bucket{Namespace: "n", Entity: e, Resource: "r"})
	}
	got, err := p.ours.Peek(p.Context(), buckets...)
	want, _ := p.model.Peek(p.Context(), buckets...)
	if err != nil || !got.At.Equal(want.At) {
		p.Fatalf("peek at %v, want %v: %v", got.At, want.At, err)
	}
	for i, g := range got.States {
		w := want.States[i]
		if !g.At.Equal(w.At) || g.Epoch != w.Epoch || g.Takes != w.Takes || len(g.Limits) != len(w.Limits) {
			p.Fatalf("bucket %+v, want %+v", g, w)
		}
		for j, gl := range g.Limits {
			if wl := w.Limits[j]; *gl.Limit != *wl.Limit || gl.Level != wl.Level || !sameCount(gl.Debited, wl.Debited) || !sameCount(gl.Returned, wl.Returned) {
				p.Fatalf("bucket %s: %+v of %+v, want %+v of %+v", g.Bucket, gl, *gl.Limit, wl, *wl.Limit)
			}
		}
	}
}

// sameCount also accepts a counter that has reached its maximum: the store's stays there, the model's wraps around.
func sameCount(got, want int64) bool { return got == want || got == math.MaxInt64 }
