package redis_test

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
	"github.com/weirlimits/weir/store/storetest"
)

// quota returns a limit of so many tokens in each window.
func quota(t testing.TB, name string, tokens int64, window string) *store.Limit {
	t.Helper()
	w, err := calendar.Parse(window)
	if err != nil {
		t.Fatal(err)
	}
	return &store.Limit{Name: name, Amount: tokens * 1000, Burst: tokens * 1000, Window: w}
}

func credits(name string) *store.Limit { return &store.Limit{Name: name, Burst: clock.Balance.Burst} }

// quotas is a store on a server of its own, at an hour that tests set.
type quotas struct {
	*testing.T
	clock  *storetest.Clock
	server server
	s      *redis.Store
}

func newQuotas(t *testing.T, now string) *quotas {
	t.Helper()
	q := &quotas{T: t, clock: storetest.NewClock(instant(t, now)), server: start(t)}
	q.s = open(t, redis.Config{Address: "redis://" + q.server.Addr, Now: q.clock.Now, CallTimeout: 10 * time.Second})
	return q
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// take makes a take and returns whether it was allowed, and how many scripts it ran.
func (q *quotas) take(ds ...store.Debit) (ok bool, calls int) {
	q.Helper()
	before := called(q, q.server)
	out, err := q.s.Take(q.Context(), store.Take{Debits: ds})
	if err != nil {
		q.Fatal(err)
	}
	return out.Allowed, called(q, q.server) - before
}

var evaluated = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+),.*failed_calls=(\d+)`)

// called returns how many scripts the server has run.
func called(t testing.TB, s server) (n int) {
	t.Helper()
	for _, m := range evaluated.FindAllStringSubmatch(s.do(t, "INFO", "commandstats"), -1) {
		calls, err := strconv.Atoi(m[1])
		failed, err2 := strconv.Atoi(m[2])
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		n += calls - failed
	}
	return n
}

// At a window's end, and where the process expects another time than the server's, a take runs the script twice;
// otherwise once. It is decided by the server's time in any case.
func TestQuotaCalls(t *testing.T) {
	t.Parallel()
	q := newQuotas(t, "2026-11-30T22:59:59Z")
	monthly := quota(t, "usd", 10, "month@Europe/Berlin")
	steps := []struct {
		name  string
		after time.Duration
		ahead time.Duration // of the server's clock, as the process expects it
		take  int64
		ok    bool
		calls int
	}{
		{"birth", 0, 0, 6, true, 1},
		{"warm", 0, 0, 4, true, 1},
		{"spent", 0, 0, 1, false, 1},
		{"a process that is ahead", 0, time.Hour, 1, false, 2},
		{"the last instant", time.Second - 1, 0, 1, false, 1},
		{"the next window", 1, 0, 10, true, 1},
		{"spent again", 0, 0, 1, false, 1},
		{"a process that is behind", 0, -time.Hour, 1, false, 2},
		{"the process has learned", 0, 0, 1, false, 1},
		{"a year later", 365 * 24 * time.Hour, 0, 10, true, 1},
	}
	for _, s := range steps {
		q.clock.Advance(s.after)
		if s.ahead != 0 {
			q.s.Expect(int64(s.ahead))
		}
		if ok, calls := q.take(one("team", monthly, s.take)); ok != s.ok || calls != s.calls {
			t.Errorf("%s: allowed %t in %v calls, want %t in %v", s.name, ok, calls, s.ok, s.calls)
		}
	}
}

// A settle on a bucket that has another quota by now, whose window has ended, is exact: it costs one more call.
func TestQuotaUnnamed(t *testing.T) {
	t.Parallel()
	q := newQuotas(t, "2026-11-15T12:00:00Z")
	was, is := quota(t, "usd", 10, "month@UTC"), quota(t, "usd", 20, "day@Asia/Kolkata")
	q.take(one("team", was, 10))
	d := one("team", is, 1)
	d.Epoch = 1
	q.take(d)
	q.clock.Advance(40 * 24 * time.Hour)
	out, err := q.s.Settle(t.Context(), store.Settle{Debits: []store.Debit{one("team", was, 5)}})
	if err != nil {
		t.Fatal(err)
	}
	p, now := is.Params(), clock.Nanos(q.clock.Now())
	if got := p.Available(out.Levels[0].Level, p.Clock(now)); *out.Levels[0].Limit != *is || got != 15_000 {
		t.Errorf("%+v has %d available, want 15,000", *out.Levels[0].Limit, got)
	}
}

// The key of a bucket with quotas lives until the window that covers what is spent has begun, and for the margin.
func TestQuotaExpiry(t *testing.T) {
	t.Parallel()
	q := newQuotas(t, "2026-11-15T12:00:00Z")
	const most = time.Second + 30*time.Second // to the next second, and what the calls may take
	lives := func(what string, entity string, want time.Duration) {
		t.Helper()
		if got := q.s.Kept(t, one(entity, nil, 0).Bucket); got > want+time.Second || got < want-most {
			t.Errorf("%s: lives for %v, want %v", what, got, want)
		}
	}
	const margin, toMonth = time.Hour, (15*24 + 11) * time.Hour // in Berlin, the month ends at 23:00
	l := quota(t, "usd", 10, "month@Europe/Berlin")
	q.take(one("a", l, 10))
	lives("spent", "a", toMonth+margin)
	q.take(one("b", quota(t, "d", 10, "day@UTC"), 1), one("a", l, 0))
	lives("a day", "b", 12*time.Hour+margin)
	for range 2 {
		if _, err := q.s.Settle(t.Context(), store.Settle{Debits: []store.Debit{one("a", l, 10)}}); err != nil {
			t.Fatal(err)
		}
	}
	lives("in debt for two more windows, of at most 32 days", "a", toMonth+2*32*24*time.Hour+margin)
}

// A bucket with a balance has no expiry, whatever else is taken from it, and a rate beside it refills.
func TestBalanceStays(t *testing.T) {
	t.Parallel()
	q := newQuotas(t, "2026-11-15T12:00:00Z")
	key := q.s.Key(one("a", nil, 0).Bucket)
	kept := func(what string) {
		t.Helper()
		if got := q.server.do(t, "PTTL", key); got != "-1" {
			t.Errorf("%s: lives for %s ms", what, got)
		}
	}
	d := one("a", still(100), 1)
	d.Charges = append(d.Charges, store.Charge{Limit: credits("credits"), Amount: 5000})
	if ok, _ := q.take(d); ok {
		t.Error("an empty balance was debited")
	}
	d.Charges[1].Force = true
	q.take(d)
	kept("a birth")
	q.take(d)
	kept("a warm take")
	q.take(with(store.Debit{Bucket: d.Bucket}, swift("x")))
	kept("an override")
	if _, err := q.s.Settle(t.Context(), store.Settle{Debits: []store.Debit{one("a", still(100), -1)}}); err != nil {
		t.Fatal(err)
	}
	kept("a settle")
	snap, err := q.s.Peek(t.Context(), d.Bucket)
	if err != nil || len(snap.States[0].Limits) != 3 || snap.States[0].Limits[1].Level != 10_000 {
		t.Errorf("%+v, %v: want a balance of -10,000", snap.States[0].Limits, err)
	}
}

// Earlier versions of weir refuse a bucket while it has a quota or a balance, by its first byte.
func TestQuotaVersion(t *testing.T) {
	t.Parallel()
	q := newQuotas(t, "2026-11-15T12:00:00Z")
	for i, c := range []struct {
		limit *store.Limit
		want  string
	}{
		{still(100), "\x01"}, {quota(t, "rpm", 9, "day@UTC"), "\x02"}, {still(100), "\x01"}, {credits("rpm"), "\x02"},
	} {
		d := one("a", c.limit, 1)
		d.Epoch, d.Charges[0].Force = uint64(i), true
		q.take(d)
		if got := q.server.do(t, "GETRANGE", q.s.Key(d.Bucket), "0", "0"); got != c.want {
			t.Errorf("%+v: version %q, want %q", *c.limit, got, c.want)
		}
	}
	snap, err := q.s.Peek(t.Context(), one("a", nil, 0).Bucket)
	if err != nil || len(snap.States[0].Limits) != 1 || snap.States[0].Limits[0].Level == math.MinInt64 {
		t.Errorf("%+v, %v", snap, err)
	}
}

// BenchmarkQuota compares takes of a quota, of a month, with those of a rate, in alternating rounds: by the server's
// time, and in all.
func BenchmarkQuota(b *testing.B) {
	s := start(b)
	st := open(b, redis.Config{Address: "redis://" + s.Addr, CallTimeout: time.Minute})
	limits := []*store.Limit{
		{Name: "limit", Amount: 1e11, Period: time.Minute, Burst: 1e12}, quota(b, "limit", 1e11, "month@Europe/Berlin"),
	}
	var server, took [2]float64
	const rounds = 20
	n := b.N/rounds + 1
	for round := range rounds + 1 { // the first creates the buckets
		for k, l := range limits {
			before, began := served(b, s), time.Now()
			each(64, n, func(i int) {
				d := one(fmt.Sprint(k, "-", i%1000), l, 1)
				if ok, err := take(b, st, d); !ok || err != nil {
					b.Errorf("allowed %t, error %v", ok, err)
				}
			})
			if round > 0 {
				server[k] += served(b, s) - before
				took[k] += time.Since(began).Seconds()
			}
		}
	}
	b.ReportMetric(server[0]/float64(rounds*n), "rate-server-µs")
	b.ReportMetric(server[1]/server[0], "quota/rate-server")
	b.ReportMetric(took[1]/took[0], "quota/rate")
	b.ReportMetric(0, "ns/op")
}
