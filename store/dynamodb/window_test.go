package dynamodb_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// quota is a limit of whole tokens in each window.
func quota(t testing.TB, name string, amount int64, window string) *store.Limit {
	t.Helper()
	w, err := calendar.Parse(window)
	if err != nil {
		t.Fatal(err)
	}
	return &store.Limit{Name: name, Amount: 1000 * amount, Burst: 1000 * amount, Window: w}
}

// monthEnd is when November begins in Berlin.
var monthEnd = time.Date(2026, time.October, 31, 23, 0, 0, 0, time.UTC)

// TestMonthEnd lets eight processes, whose clocks differ by up to 4 s, spend a quota around the end of a month. A clock
// that is ahead must not refuse others what they would have had, and no window may spend more than its amount.
func TestMonthEnd(t *testing.T) {
	t.Parallel()
	ahead := func(c *dynamodb.Config) { c.Prefetch = dynamodb.Prefetch{Share: 0.1, For: time.Second} }
	for _, tt := range []struct {
		name   string
		amount int64
		shards int
		change func(*dynamodb.Config)
	}{
		{"ample", 1_000_000, 1, nil},
		{"ample, split", 1_000_000, 4, nil},
		{"ample, ahead", 1_000_000, 1, ahead},
		{"scarce", 1500, 1, nil},
		{"scarce, split", 1500, 4, nil},
		{"scarce, ahead", 1500, 1, ahead},
	} {
		if brief(t) && tt.amount > 1500 && tt.change == nil {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t)
				st.clock.Set(monthEnd.Add(-10 * time.Second))
				usd, alice := quota(t, "usd", tt.amount, "month@Europe/Berlin"), bkt("alice")
				flow, begun := st.flow(), time.Now()
				st.slow(3 * time.Millisecond)
				var mu sync.Mutex
				decided, early, late := map[int64]int64{}, int64(0), int64(0) // tokens, by the window of the decision
				refused, asked := 0, 0
				open := func(skew time.Duration) *dynamodb.Store {
					return st.open(flow, func(c *dynamodb.Config) {
						now := c.Now
						c.Now = func() time.Time { return now().Add(skew) }
						if tt.change != nil {
							tt.change(c)
						}
					})
				}
				first := open(0)
				st.want(first, true, of(alice, usd, 1))
				decided[33]++
				if tt.shards > 1 {
					st.split(first, alice, tt.shards)
				}
				var group sync.WaitGroup
				for i := range 8 {
					s := open(time.Duration(i)*4*time.Second/7 - 2*time.Second)
					for caller := range 3 {
						group.Go(func() {
							rng := rand.New(rand.NewPCG(uint64(i), uint64(caller)))
							for time.Since(begun) < 20*time.Second {
								time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
								out := st.take(s, of(alice, usd, 1))
								w, over := usd.Window.Index(clock.Nanos(out.At)), time.Since(begun) > 10*time.Second
								mu.Lock()
								asked++
								switch {
								case !out.Allowed:
									refused++
								case w == 34 && !over:
									early++
								case w == 33 && over:
									late++
								}
								if out.Allowed {
									decided[w]++
								}
								mu.Unlock()
							}
						})
					}
				}
				group.Wait()
				t.Logf("%d asked, %d refused, spent %v, %d early, %d late", asked, refused, decided, early, late)
				for w, sum := range decided {
					if sum > tt.amount || w != 33 && w != 34 {
						t.Errorf("%d spent in window %d", sum, w)
					}
				}
				if tt.amount > int64(asked) && refused > 0 {
					t.Errorf("%d of %d refused", refused, asked)
				}
				if early == 0 || decided[33] == 0 {
					t.Errorf("%d early, %v", early, decided)
				}
				// A bucket that is split meanwhile loses less than a token for each half.
				if tt.amount < int64(asked)/2 && tt.change == nil && (decided[33] < tt.amount-8 || decided[34] < tt.amount-8) {
					t.Errorf("only %v of %d spent", decided, tt.amount)
				}
			})
		})
	}
}

// TestQuotaCost checks that a quota costs one write for each decision and no read, at a window's end as in its middle.
func TestQuotaCost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4} {
		st := newStage(t)
		st.clock.Set(monthEnd.Add(-time.Hour))
		s := st.open()
		d := of(bkt("alice"), quota(t, "usd", 800, "month@Europe/Berlin"), 10)
		d.Charges = append(d.Charges, store.Charge{Limit: per("rpm", 60, time.Minute, 60), Amount: 1000})
		st.want(s, true, d)
		st.split(s, d.Bucket, n)
		st.want(s, true, d)
		for _, after := range []time.Duration{time.Second, 59*time.Minute + 59*time.Second, 31 * 24 * time.Hour} {
			st.clock.Advance(after)
			if n > 1 && after > time.Second {
				st.want(s, true, d) // raises the ttl of shard 0, once in each window
			}
			before, reads := st.writes(), st.fake.Capacity().Read
			if calls := st.spent(func() { st.want(s, true, d) }); calls != 1 || st.writes() != before+1 || st.fake.Capacity().Read != reads {
				t.Errorf("%d shards, after %v: %d calls", n, after, calls)
			}
		}
	}
}

// TestQuotaEdge checks that a window's amount is refused to the last nanosecond of the window and there from the next on,
// and that the retry time is that instant, whole or split.
func TestQuotaEdge(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 8} {
		st := newStage(t)
		st.clock.Set(monthEnd.Add(-time.Minute))
		s := st.open(noMemory)
		usd, alice := quota(t, "usd", 80, "month@Europe/Berlin"), bkt("alice")
		st.want(s, true, of(alice, usd, 40))
		st.split(s, alice, n)
		left := int64(0)
		for st.take(s, of(alice, usd, 1)).Allowed {
			left++
		}
		if left > 40 || left < 40-int64(n) {
			t.Errorf("%d shards: %d were left", n, left)
		}
		st.clock.Set(monthEnd.Add(-1))
		out := st.want(s, false, of(alice, usd, 1))
		l := out.Levels[0]
		if wait, ok := usd.Params().RetryAfter(l.Level, clock.Nanos(out.At), 1000); !ok || wait != 1 || !l.Refused {
			t.Errorf("%d shards: retry after %v, %t", n, wait, ok)
		}
		st.clock.Set(monthEnd)
		for st.take(s, of(alice, usd, 1)).Allowed {
			left++
		}
		if spent := left - 40 + int64(n); spent < 80 || left > 120 {
			t.Errorf("%d shards: %d in the next window", n, left-40)
		}
	}
}

// TestQuotaSpentAcrossShards checks that processes that contend for a split bucket refuse nobody before its last token
// is spent.
func TestQuotaSpentAcrossShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		st.clock.Set(monthEnd.Add(-time.Hour))
		flow := st.flow()
		usd, alice := quota(t, "usd", 1600, "month@Europe/Berlin"), bkt("alice")
		first := st.open(flow)
		st.want(first, true, of(alice, usd, 1))
		st.split(first, alice, 16)
		st.slow(5 * time.Millisecond)
		var mu sync.Mutex
		spent, early := int64(1), 0
		var group sync.WaitGroup
		for range 4 {
			s := st.open(flow)
			for range 5 {
				group.Go(func() {
					for range 160 {
						out := st.take(s, of(alice, usd, 1))
						mu.Lock()
						if out.Allowed {
							spent++
						} else if spent < 1600-16-20 { // what is lost to halves, and what others are about to get
							early++
						}
						mu.Unlock()
					}
				})
			}
		}
		group.Wait()
		if spent > 1600 || spent < 1600-16 || early > 0 {
			t.Errorf("%d of 1600 spent, %d refused before", spent, early)
		}
	})
}

// TestQuotaReturnsLate checks that what was debited in one window is not given back to the next, which another process
// begins before the return arrives.
func TestQuotaReturnsLate(t *testing.T) {
	t.Parallel()
	for _, debt := range []int64{0, 70} {
		st := newStage(t)
		st.clock.Set(monthEnd.Add(-time.Second))
		usd, alice := quota(t, "usd", 100, "month@Europe/Berlin"), bkt("alice")
		s, p := st.join()
		other, _ := st.join()
		st.want(s, true, of(alice, usd, 60))
		if debt > 0 {
			st.settle(s, of(alice, usd, debt))
		}
		since := st.clock.Now()
		p.before = func(string, any) error {
			p.before = nil
			st.clock.Set(monthEnd)
			st.take(other, of(alice, usd, 10))
			return nil
		}
		back := of(alice, usd, -50)
		back.Charges[0].Strict = true
		if _, err := s.Settle(t.Context(), store.Settle{Debits: []store.Debit{back}, Since: since}); err != nil {
			t.Fatal(err)
		}
		if owed, want := st.outstanding(alice, "usd"), 10_000+max(0, 60+debt-100)*1000; owed != want {
			t.Errorf("debt %d: %d outstanding in the next window, want %d", debt, owed, want)
		}
	}
}

// TestQuotaLives checks that an item is kept until the window has begun that covers what it owes, and a day longer.
func TestQuotaLives(t *testing.T) {
	t.Parallel()
	for _, window := range []string{"hour@UTC", "day@Africa/Cairo", "week+sun@Asia/Kolkata", "month@Europe/Berlin", "month+31@UTC", "quarter@America/New_York", "year@UTC"} {
		for i := range 40 {
			st := newStage(t)
			st.clock.Set(monthEnd.Add(time.Duration(i) * 11 * 24 * time.Hour))
			s, l := st.open(), quota(t, "q", 100, window)
			st.want(s, true, of(bkt("a"), l, 1))
			forced := int64(i%3) * 150
			if forced > 0 {
				st.settle(s, of(bkt("a"), l, forced))
			}
			now := clock.Nanos(st.clock.Now())
			full := clock.Time(l.Window.Start(l.Window.Index(now) + (1+forced+99)/100))
			ttl, _ := st.number(bkt("a"), "ttl")
			if at := time.Unix(whole(t, ttl), 0); at.Before(full.Add(24*time.Hour)) || forced == 0 && at.After(full.Add(48*time.Hour+2*time.Second)) {
				t.Errorf("%s, %v, %d forced: kept until %v, full at %v", window, st.clock.Now(), forced, at, full)
			}
		}
	}
}

// TestQuotaItem checks what an item of a quota is, and that an item of an earlier version is read as before.
func TestQuotaItem(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	st.clock.Set(monthEnd)
	st.want(st.open(), true, of(bkt("a"), quota(t, "usd", 100, "month@Europe/Berlin"), 1))
	if got := fmt.Sprint(st.item(bkt("a"))["P_usd"]); got != "&{100/100/month@Europe/Berlin {}}" {
		t.Errorf("%s", got)
	}
	level, _ := st.number(bkt("a"), "L_usd")
	if want := int64(34*100_000 + 1000); whole(t, level) != want {
		t.Errorf("level %s, want %d", level, want)
	}
}
