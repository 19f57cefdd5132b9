package weir_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// TestNotedAnyhow: whatever is set through a process, at any levels, it answers by that in an outage, whether it has read
// it back or not.
func TestNotedAnyhow(t *testing.T) {
	t.Parallel()
	unset := weir.OnUnavailableDefault
	policies := []weir.OnUnavailable{unset, weir.OnUnavailableAllow, weir.OnUnavailableLocal, weir.OnUnavailableDeny}
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 4*4*3-1), 1, 8).Draw(r, "steps")
		config := rapid.SampledFrom(policies[1:]).Draw(r, "config")
		changing(t, func(b *bundle, _ *writes) {
			b.set("", "", weir.PerSecond("rps", 1000))
			b.take("bob", nil)
			set := make([]weir.OnUnavailable, len(scopes)) // from the most general scope to the most specific
			for _, s := range steps {
				level, policy, then := s%4, policies[s/4%4], s/16
				must(t, b.admin.Limits.SetOnUnavailable(b.ctx, scopes[level], policy))
				set[level] = policy
				if then == 0 {
					continue
				}
				want := config
				for _, u := range set {
					if u != unset {
						want = u
					}
				}
				b.fake.does(dark)
				if got := b.answer("alice"); got != want {
					r.Errorf("%s, want %s of %v, else %s", got, want, set, config)
				}
				b.fake.does(recovers)
				if then == 1 { // nothing is read before the next change
					continue
				}
				b.eventually("it is asked", func() bool { // calls that hang have ended
					lease, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
					return err == nil && !lease.Decision().Degraded
				})
			}
		}, func(c *weir.Config) { c.OnUnavailable, c.Cooldown, c.Observer = config, -1, nil })
	})
}

// TestFlapsAndChanges: a store that comes and goes while limits change, and some changes fail, costs no more than one whose
// limits stay, by the highest of the limits that a process may still have.
func TestFlapsAndChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		type stretch struct {
			up, down time.Duration
			rate     int64
			outcome  int
		}
		all := make([]stretch, rapid.IntRange(1, 6).Draw(r, "stretches"))
		for i := range all {
			ms := func(name string) time.Duration {
				return time.Duration(rapid.IntRange(0, 3000).Draw(r, name)) * time.Millisecond
			}
			all[i] = stretch{ms("up"), ms("down"), rapid.SampledFrom([]int64{5, 10, 20}).Draw(r, "rate"), rapid.IntRange(0, 2).Draw(r, "outcome")}
		}
		synctest.Test(t, func(t *testing.T) {
			w := &writes{Store: memory.New(nil)}
			o := &outage{Store: w}
			fleet, end := fleetOfTwo(t, o, time.Second)
			defer end()
			set := func(by int, rate int64, outcome int) {
				fails := func(apply func() error) error {
					if outcome == 1 {
						return context.DeadlineExceeded
					}
					return errors.Join(context.DeadlineExceeded, apply())
				}
				if outcome > 0 {
					w.fails.Store(&fails)
				}
				_ = admin.New(fleet[by]).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", rate))
				w.fails.Store(nil)
			}
			most := int64(10) // the largest burst, and what an outage may cost
			for _, s := range all {
				most = max(most, s.rate)
			}
			set(0, 10, 0)
			const late = 200 * time.Millisecond // a cooldown and a fifth, and the calls of a round
			var once, twice excess
			run := func(d time.Duration, may int64) { // may is the highest rate that a process may know, a second
				once.admit(0)
				twice.admit(0)
				once.rate, twice.rate = float64(may), 2*float64(may)
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					for _, lim := range fleet {
						if _, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}}); err == nil {
							once.admit(1)
							twice.admit(1)
						}
					}
				}
			}
			known, together := []int64{10}, true
			for i, s := range all {
				set(i%2, s.rate, s.outcome)
				if s.outcome != 1 {
					known = append(known, s.rate)
				}
				run(s.up, slices.Max(known))
				o.dark.Store(true)
				run(s.down, slices.Max(known))
				o.dark.Store(false)
				if together = together && s.up >= late; s.up >= 1500*time.Millisecond { // both have read the change
					known = known[len(known)-1:]
				}
			}
			if bound := float64(most) * (1 + 1 + 1 + late.Seconds()); together && once.most > bound {
				r.Errorf("%.1f tokens ahead of the rate, at most %.1f", once.most, bound)
			}
			if twice.most > float64(2*most) {
				r.Errorf("%.1f tokens ahead of twice the rate, at most %d", twice.most, 2*most)
			}
		})
	})
}
