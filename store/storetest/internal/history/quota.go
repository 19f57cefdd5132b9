package history

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// The invariants for quotas, and what a quota is for: exactly its amount in each window of the calendar.
func quotaScenarios() []Scenario {
	need := Caps{HandClock: true, Quotas: true}
	all := features{legs: historyBuckets, force: true, back: true, quota: true}
	shadow := all
	shadow.shadow = true
	return []Scenario{
		{Name: "I1 and I4 when the clock jumps back", Need: need, Run: property(
			features{legs: historyBuckets, force: true, back: true, jump: true, quota: true}, playI1)},
		{Name: "I2 never lose", Need: need, Run: property(shadow, playI2)},
		{Name: "I3 polling-free", Need: need, Run: property(all, playI3)},
		{Name: "I4 time never runs backwards", Need: need, Run: property(all, playI4)},
		{Name: "I6 retryAfter is tight", Need: need, Run: property(all, playI6)},
		{Name: "returns bound what is kept", Need: need, Run: quotaKeeps},
		{Name: "windows", Need: need, Run: OnStore(quotaWindows)},
		{Name: "a debt carries over", Need: need, Run: OnStore(quotaDebt)},
		{Name: "returns", Need: need, Run: OnStore(quotaReturns)},
		{Name: "returns across a change of kind", Need: need, Run: OnStore(quotaReturnsAcross)},
		{Name: "returns across a change by others", Need: need, Peer: true, Run: OnStore(quotaReturnsPeers)},
		{Name: "forgiven", Need: need, Run: OnStore(quotaForgiven)},
		{Name: "changes", Need: need, Run: OnStore(quotaChanges)},
		{Name: "overrides", Need: need, Run: OnStore(quotaOverrides)},
		{Name: "clocks apart at the boundary", Need: need, Peer: true, Run: OnStore(quotaSkewed)},
	}
}

// boundary is where a window begins.
type boundary struct{ window, begins string }

// Boundaries were computed with another language's time zone library. In some, a midnight is skipped or comes late.
var boundaries = []boundary{
	{"hour@UTC", "2026-03-01T13:00"},
	{"day@UTC", "2026-03-02T00:00"},
	{"day@America/New_York", "2026-10-30T04:00"},
	{"day@Africa/Cairo", "2026-10-28T21:00"},
	{"day@Africa/Cairo", "2026-10-29T22:00"},
	{"day@Africa/Cairo", "2026-04-23T22:00"},
	{"day@America/Santiago", "2026-09-06T04:00"},
	{"day@America/Santiago", "2026-09-07T03:00"},
	{"week@Asia/Kolkata", "2026-11-15T18:30"},
	{"week+sun@UTC", "2026-03-08T00:00"},
	{"month@UTC", "2026-12-01T00:00"},
	{"month@Europe/Berlin", "2026-10-31T23:00"},
	{"month+31@Europe/Berlin", "2027-02-27T23:00"},
	{"month+31@Europe/Berlin", "2027-03-30T22:00"},
	{"quarter@UTC", "2026-10-01T00:00"},
	{"year@Asia/Tokyo", "2026-12-31T15:00"},
}

func (b boundary) at() time.Time {
	at, err := time.Parse("2006-01-02T15:04", b.begins)
	if err != nil {
		panic(err)
	}
	return at
}

// drawQuota draws a quota, and a time shortly before one of its windows begins.
func drawQuota(t *rapid.T, name string) (*store.Limit, time.Duration) {
	b := rapid.SampledFrom(boundaries).Draw(t, "boundary")
	l := Quota(name, 1, b.window)
	l.Amount = rapid.OneOf(rapid.Int64Range(1, 5000), rapid.Int64Range(1, 1e12)).Draw(t, "amount")
	l.Burst = l.Amount
	before := rapid.OneOf(
		rapid.Int64Range(0, int64(time.Minute)), rapid.Int64Range(0, int64(5*time.Hour)),
	).Draw(t, "before")
	return l, b.at().Sub(Noon) - time.Duration(before)
}

// quotaWindows checks that each boundary is where it has to be, to the nanosecond: before it, nothing more than the
// amount; from then on, as much again.
func quotaWindows(e *Env) {
	inOrder := slices.Clone(boundaries)
	slices.SortFunc(inOrder, func(a, b boundary) int { return a.at().Compare(b.at()) })
	for _, bound := range inOrder {
		b, l := Bucket("alice", bound.window+bound.begins), Quota("usd", 1000, bound.window)
		e.Clock.Set(bound.at().Add(-time.Second))
		e.Allow(Debit(b, Charge(l, 400)))
		e.Allow(Debit(b, Charge(l, 600)))
		out := e.Refuse(Debit(b, Charge(l, 1)))
		if wait, ok := RetryAfter(out, 0, Token); !ok || wait != time.Second {
			e.Fatalf("%s: retry after %v, %t", bound.window, wait, ok)
		}
		e.Clock.Advance(time.Second - 1)
		e.Refuse(Debit(b, Charge(l, 1)))
		e.Clock.Advance(1)
		e.WantTokens(b, l, 1000)
		e.Refuse(Debit(b, Charge(l, 1001)))
		e.Allow(Debit(b, Charge(l, 1000)))
		e.Refuse(Debit(b, Charge(l, 1)))
		e.WantTokens(b, l, 0)
	}
}

// quotaDebt checks that a debt takes what it needs of the next windows, and nothing that is left over is added to them.
func quotaDebt(e *Env) {
	b, l := Bucket("alice", "api"), Quota("usd", 10, "hour@UTC")
	e.Allow(Debit(b, Force(l, 25)))
	e.WantDebt(b, l, 25*Token)
	out := e.Refuse(Debit(b, Charge(l, 6)))
	wait, _ := RetryAfter(out, 0, 6*Token)
	if want := Noon.Truncate(time.Hour).Add(3 * time.Hour).Sub(Noon); wait != want {
		e.Fatalf("retry after %v, want %v", wait, want)
	}
	e.Clock.Set(Noon.Truncate(time.Hour).Add(2 * time.Hour))
	e.WantTokens(b, l, 5)
	e.Clock.Advance(30 * time.Minute)
	e.Allow(Debit(b, Charge(l, 4)))
	for range 2 {
		e.Clock.Advance(time.Hour)
		e.WantTokens(b, l, 10)
	}
}

// giveBack returns a settle of what was debited at a time.
func giveBack(since time.Time, b store.Bucket, l *store.Limit, tokens int64) store.Settle {
	return store.Settle{Debits: []store.Debit{Debit(b, Charge(l, -tokens))}, Since: since}
}

// quotaReturns checks that a return within the window counts in full, and one after it gives nothing, although the
// charge is not marked as strict.
func quotaReturns(e *Env) {
	b, l := Bucket("alice", "api"), Quota("usd", 100, "hour@UTC")
	out := e.Allow(Debit(b, Charge(l, 90)))
	e.Clock.Set(Noon.Truncate(time.Hour).Add(time.Hour - 1))
	e.SettleOnce(giveBack(out.At, b, l, 50))
	e.WantTokens(b, l, 60)
	e.SettleOnce(giveBack(time.Time{}, b, l, 5)) // of an unknown time: nothing
	e.WantTokens(b, l, 60)
	e.Clock.Advance(1)
	e.Allow(Debit(b, Charge(l, 70)))
	e.SettleOnce(giveBack(out.At, b, l, 40))
	e.WantTokens(b, l, 30)
	once := giveBack(out.At, b, l, 40)
	once.ID, once.Expires = "late", e.Soon()
	e.SettleOnce(once)
	e.WantTokens(b, l, 30)
}

// quotaReturnsAcross checks that nothing debited from a limit of another kind is given back, neither in the window of
// the change nor in the next.
func quotaReturnsAcross(e *Env) {
	hour := Quota("usd", 100, "hour@UTC")
	for name, c := range map[string]struct{ from, to *store.Limit }{
		"a rate a quota":        {Still("usd", 100), hour},
		"a quota a rate":        {hour, Still("usd", 100)},
		"a quota another quota": {hour, Quota("usd", 100, "day@UTC")},
	} {
		b := Bucket(name, "api")
		e.Clock.Set(Noon.Truncate(time.Hour).Add(time.Minute))
		out := e.Allow(Debit(b, Charge(c.from, 60)))
		e.Allow(At(2, Debit(b, Charge(c.to, 10))))
		once := giveBack(out.At, b, c.from, 20)
		once.ID, once.Expires = name, e.Soon()
		e.SettleOnce(once)
		e.SettleOnce(giveBack(out.At, b, c.from, 50))
		e.WantTokens(b, c.to, 30)
		e.WantCounts(b, c.to, 70*Token, 0)
	}
	b := Bucket("a rate a quota", "api")
	e.Clock.Set(Noon.Truncate(time.Hour).Add(time.Hour))
	e.Allow(At(2, Debit(b, Charge(hour, 70))))
	e.SettleOnce(giveBack(Noon, b, Still("usd", 100), 50))
	e.WantTokens(b, hour, 30)
}

// quotaReturnsPeers checks the same for processes that last saw the former limit, or none, also beside a debit.
func quotaReturnsPeers(e *Env) {
	b, rate, hour, rpm := Bucket("alice", "api"), Still("usd", 100), Quota("usd", 100, "hour@UTC"), Still("rpm", 9)
	seen := e.Peer()
	out := seen.Allow(At(1, Debit(b, Charge(rate, 60), Charge(rpm, 1))))
	seen.Quiesce()
	e.Allow(At(2, Debit(b, Charge(hour, 10), Charge(rpm, 1))))
	e.Quiesce()
	for _, p := range []*Env{seen, e.Peer(), e.Peer()} {
		p.SettleOnce(giveBack(out.At, b, rate, 10))
		p.Quiesce()
		e.WantTokens(b, hour, 30)
	}
	beside := e.Peer()
	beside.Settle(Debit(b, Charge(rpm, 1), Charge(rate, -10)))
	beside.Quiesce()
	e.WantTokens(b, hour, 30)
	e.WantTokens(b, rpm, 6)
}

func quotaForgiven(e *Env) {
	b, l := Bucket("alice", "api"), Quota("usd", 100, "month@Europe/Berlin")
	e.Allow(Debit(b, Force(l, 350)))
	s := giveBack(time.Time{}, b, l, 1000)
	s.Forgive = true
	e.SettleOnce(s)
	e.WantTokens(b, l, 0)
}

// quotaChanges checks that what was spent counts at most as one whole new window, and that a debt stays.
func quotaChanges(e *Env) {
	rate := &store.Limit{Name: "usd", Amount: 100 * Token, Period: time.Minute, Burst: 200 * Token}
	month := Quota("usd", 5000, "month@UTC")
	for name, c := range map[string]struct {
		from, to    *store.Limit
		spent, left int64
	}{
		"boost ended":     {Quota("usd", 50_000, "month@UTC"), month, 20_000, 0},
		"within":          {Quota("usd", 50_000, "month@UTC"), month, 2000, 3000},
		"boost began":     {month, Quota("usd", 50_000, "month@UTC"), 5000, 45_000},
		"a month a day":   {Quota("usd", 3000, "month@UTC"), Quota("usd", 100, "day@UTC"), 2900, 0},
		"another zone":    {month, Quota("usd", 5000, "month@Asia/Tokyo"), 4000, 1000},
		"another anchor":  {month, Quota("usd", 5000, "month+15@UTC"), 4000, 1000},
		"a rate a month":  {rate, month, 150, 4850},
		"a month a rate":  {month, rate, 5000, 0},
		"a debt boosted":  {month, Quota("usd", 50_000, "month@UTC"), 6000, 44_000},
		"a debt a rate":   {month, rate, 5010, -10},
		"a rate's debt":   {rate, month, 210, 4790},
		"a debt":          {month, Quota("usd", 100, "day@UTC"), 5350, -350},
		"a rate's burst":  {rate, Quota("usd", 100, "day@UTC"), 200, 0},
		"as it was again": {month, Quota("usd", 5000, "month@UTC"), 10, 4990},
	} {
		b := Bucket(name, "api")
		e.Allow(Debit(b, Force(c.from, c.spent)))
		e.Take(At(2, Debit(b, Charge(c.to, 0))))
		e.Quiesce()
		if got := e.Available(b, c.to); got != c.left*Token {
			e.Errorf("%s: %d millitokens are left, want %d tokens", name, got, c.left)
		}
	}
	e.Clock.Set(time.Date(2026, time.March, 2, 0, 0, 0, 0, time.UTC))
	e.WantTokens(Bucket("a month a day", "api"), Quota("usd", 100, "day@UTC"), 100)
	e.Clock.Set(time.Date(2026, time.April, 1, 0, 0, 0, 0, time.UTC))
	e.WantTokens(Bucket("boost ended", "api"), month, 5000)
}

// quotaOverrides checks that quotas that requests bring are told apart by their windows.
func quotaOverrides(e *Env) {
	b := Bucket("alice", "api")
	utc, berlin := Override(Quota("usd", 10, "month@UTC")), Override(Quota("usd", 10, "month@Europe/Berlin"))
	e.Allow(Loose(b, Charge(utc, 7)))
	e.Allow(Loose(b, Charge(berlin, 9)))
	e.Refuse(Loose(b, Charge(utc, 4)))
	e.Refuse(Loose(b, Charge(berlin, 2)))
	e.WantTokens(b, utc, 3)
	e.WantTokens(b, berlin, 1)
}

// quotaSkewed lets a process whose clock is two seconds ahead pass a boundary before another. Each window admits its
// amount at most, whoever opened it, and the other process is served once it is there, too.
func quotaSkewed(e *Env) {
	begins := Noon.Truncate(time.Hour).Add(time.Hour)
	b, l := Bucket("alice", "api"), Quota("usd", 10, "hour@UTC")
	e.Clock.Set(begins.Add(-5 * time.Second))
	ahead := *e
	ahead.Clock = NewClock(e.Clock.Now().Add(2 * time.Second))
	fast := ahead.Peer()
	admitted, wants := map[int64]int64{}, int64(0)
	for range 16 {
		for _, p := range []*Env{e, fast} {
			for range 2 {
				if out := p.Take(Debit(b, Charge(l, 1))); out.Allowed {
					admitted[reckon.Reading(l, out.At)] += Token
				}
				wants++
			}
		}
		e.Quiesce()
		e.Clock.Advance(500 * time.Millisecond)
		fast.Clock.Advance(500 * time.Millisecond)
	}
	total := int64(0)
	for reading, n := range admitted {
		if total += n; n > l.Amount {
			e.Errorf("%d millitokens were admitted in the window of %d", n, reading)
		}
	}
	if most := 2 * l.Amount; total != most {
		e.Errorf("%d of %d millitokens were admitted over two windows of %d", total, wants*Token, l.Amount)
	}
}
