package weir_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store/memory"
)

// excess is by how much tokens exceed a rate, between any two instants.
type excess struct {
	rate        float64 // tokens a second
	ahead, most float64
	last        time.Time
}

func (e *excess) admit(tokens int64) {
	now := time.Now()
	e.ahead = max(0, e.ahead-e.rate*now.Sub(e.last).Seconds()) + float64(tokens)
	e.most, e.last = max(e.most, e.ahead), now
}

// A store that flaps costs a burst beyond what an outage costs, not one per flap, if it answers for long enough to be
// called by all: what was admitted without it is charged as soon as it answers. Otherwise a process counts as cut off,
// and adds its share of the rate.
func TestLocalFlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ up, down time.Duration }{
		{time.Second, time.Second},
		{2 * time.Second, 2 * time.Second},
		{200 * time.Millisecond, 1300 * time.Millisecond},
		{150 * time.Millisecond, 850 * time.Millisecond},
		{60 * time.Millisecond, 940 * time.Millisecond},
	} {
		t.Run(c.up.String()+" of "+(c.up+c.down).String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate, burst, over = 10, 10, 10
				o := &outage{Store: memory.New(nil)}
				fleet, end := fleetOfTwo(t, o, time.Hour)
				defer end()
				must(t, admin.New(fleet[0]).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", rate)))
				began := time.Now()
				once, twice, admitted := excess{rate: rate}, excess{rate: 2 * rate}, 0
				for since := time.Duration(0); since < 2*time.Minute; since = time.Since(began) {
					o.dark.Store(since%(c.up+c.down) >= c.up)
					for _, lim := range fleet {
						if _, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}}); err == nil {
							once.admit(1)
							twice.admit(1)
							admitted++
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
				took := time.Since(began)
				o.dark.Store(false)
				t.Logf("admitted %d of %.0f, at most %.1f ahead; %+v", admitted, rate*took.Seconds(), once.most, parts.Of(fleet[0]).Outage.Stats())
				const late = 150 * time.Millisecond // a cooldown and a fifth, and a round of calls
				if most := burst + over + burst + rate*late.Seconds(); c.up >= late && once.most > most {
					t.Errorf("%.1f tokens ahead of the rate, at most %.1f", once.most, most)
				}
				if twice.most > burst+over {
					t.Errorf("%.1f tokens ahead of twice the rate", twice.most)
				}
			})
		})
	}
}

// In any pattern of outages that all processes see, they admit at most the limit, what an outage may cost (Over), a
// burst, and what the rate issues until the last process calls the store again. In any pattern at all, even if each
// process has outages of its own, they admit at most twice the rate, the burst, and what an outage may cost. With
// LocalMax, or if their number is counted wrongly, the part of the rate that they admit by themselves is
// LocalMax × processes / counted instead of the whole; within an outage that all see, they admit no more than that part
// and what an outage may cost.
func TestFlapsInAnyPattern(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(r, "processes")
		own := rapid.Bool().Draw(r, "outages of their own")
		counted := rapid.IntRange(1, 4).Draw(r, "counted")
		most := rapid.IntRange(1, 100).Draw(r, "LocalMax")
		if rapid.Bool().Draw(r, "by default") {
			counted, most = n, 0
		}
		limit := weir.Limit{
			Name: "rps", Amount: rapid.Int64Range(1, 30).Draw(r, "rate"), Period: time.Second,
			Burst: rapid.Int64Range(1, 40).Draw(r, "burst"),
		}
		largest := rapid.Int64Range(1, limit.Burst).Draw(r, "largest request")
		const within, pause = 10 * time.Millisecond, 10 * time.Millisecond
		round := time.Duration(n)*within + pause
		type stretch struct {
			dark [3]bool
			long time.Duration
			cost int64
		}
		stretches := make([]stretch, rapid.IntRange(1, 30).Draw(r, "stretches"))
		for i := range stretches {
			s := &stretches[i]
			s.long = max(2*round, time.Duration(rapid.IntRange(0, 3000).Draw(r, "ms"))*time.Millisecond)
			s.cost = rapid.Int64Range(0, largest).Draw(r, "cost")
			for k := range n {
				s.dark[k] = i%2 == 1
				if own {
					s.dark[k] = rapid.Bool().Draw(r, "dark")
				}
			}
		}
		synctest.Test(t, func(t *testing.T) {
			st := memory.New(nil)
			defer st.Close()
			var stores []*outage
			var fleet []*weir.Limiter
			for range n {
				o := &outage{Store: st}
				lim, err := weir.New(weir.Config{
					Store: lasting{o}, OnUnavailable: weir.OnUnavailableLocal, DecideWithin: within, StoreTimeout: 5 * within,
					CacheTTL: time.Hour, Cooldown: -1, Instances: func() int { return counted },
					LocalMax: most,
				})
				must(t, err)
				stores, fleet = append(stores, o), append(fleet, lim)
			}
			defer func() {
				for _, lim := range fleet {
					lim.Close()
				}
			}()
			must(t, admin.New(fleet[0]).Limits.Set(t.Context(), admin.Scope{}, limit))
			rate, part := float64(limit.Amount), float64(n)/float64(counted)
			if most > 0 {
				part *= float64(most) / 100
			}
			over := float64(n) * max(float64(limit.Burst)*part/float64(n), 1, float64(largest))
			once, twice := excess{rate: rate}, excess{rate: rate * (1 + part)}
			for _, s := range stretches {
				without := excess{rate: rate * part, last: time.Now()}
				for k, o := range stores {
					o.dark.Store(s.dark[k])
				}
				for end := time.Now().Add(s.long); time.Now().Before(end); time.Sleep(pause) {
					for _, lim := range fleet {
						if _, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": s.cost}}); err == nil {
							once.admit(s.cost)
							twice.admit(s.cost)
							without.admit(s.cost)
						}
					}
				}
				if !own && s.dark[0] && without.most > over+0.01 {
					r.Errorf("%.2f tokens ahead of %.2f of the rate without the store, at most %.2f", without.most, part, over)
				}
			}
			if most := float64(limit.Burst) + over + float64(limit.Burst) + rate*round.Seconds(); !own && part <= 1 && once.most > most+0.01 {
				r.Errorf("%.2f tokens ahead of the rate, at most %.2f", once.most, most)
			}
			if most := float64(limit.Burst) + over; twice.most > most+0.01 {
				r.Errorf("%.2f tokens ahead of %.2f times the rate, at most %.2f", twice.most, 1+part, most)
			}
		})
	})
}

// fleetOfTwo returns two limiters that share a store which can go down, and a function that closes them.
func fleetOfTwo(t *testing.T, o *outage, ttl time.Duration) (fleet []*weir.Limiter, end func()) {
	t.Helper()
	for range 2 {
		lim, err := weir.New(weir.Config{
			Store: o, OnUnavailable: weir.OnUnavailableLocal, DecideWithin: 10 * time.Millisecond, StoreTimeout: 50 * time.Millisecond, CacheTTL: ttl,
			Cooldown: 100 * time.Millisecond, Instances: func() int { return 2 },
		})
		must(t, err)
		fleet = append(fleet, lim)
	}
	return fleet, func() {
		for _, lim := range fleet {
			must(t, lim.Close())
		}
	}
}
