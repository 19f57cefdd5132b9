package weir_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store/memory"
)

// TestNotedAnyhow: whatever is set through a process, at any levels and with any outcome, in an outage the process
// answers by the strictest value that may be set, or by the actual value once it could read it.
func TestNotedAnyhow(t *testing.T) {
	t.Parallel()
	unset := weir.OnUnavailableDefault
	policies := []weir.OnUnavailable{unset, weir.OnUnavailableAllow, weir.OnUnavailableLocal, weir.OnUnavailableDeny}
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 4*4*3*3-1), 1, 8).Draw(r, "steps")
		config := rapid.SampledFrom(policies[1:]).Draw(r, "config")
		changing(t, func(b *bundle, w *writes) {
			b.set("", "", weir.PerSecond("rps", 1000))
			b.take("bob", nil)
			may := make([]map[weir.OnUnavailable]bool, len(scopes)) // from the most general scope to the most specific
			for i := range may {
				may[i] = map[weir.OnUnavailable]bool{unset: true}
			}
			order, vague := map[weir.OnUnavailable]int{weir.OnUnavailableAllow: 1, weir.OnUnavailableLocal: 2, weir.OnUnavailableDeny: 3}, false
			strictest := func() weir.OnUnavailable {
				best := unset
				for i := len(may) - 1; i >= 0; i-- {
					for u := range may[i] {
						if order[u] > order[best] {
							best = u
						}
					}
					if !may[i][unset] {
						return best
					}
				}
				if order[config] > order[best] {
					return config
				}
				return best
			}
			made := make(map[int]weir.OnUnavailable) // by level: applied, although the change reported an error
			gone := make([]bool, len(scopes))        // a record existed once: if one is re-created in doubt, versions cannot tell, and the stricter value counts
			read := func() {
				clear(made)
				b.eventually("it is asked", func() bool { // calls that hang have ended
					lease, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
					return err == nil && !lease.Decision().Degraded
				})
				for i, scope := range scopes {
					now, err := b.Limits(b.ctx, scope)
					if err != nil && !errors.Is(err, weir.ErrNotFound) {
						r.Error(err)
					}
					may[i] = map[weir.OnUnavailable]bool{now.OnUnavailable: true}
				}
			}
			for _, s := range steps {
				level, policy, outcome, then := s%4, policies[s/4%4], s/16%3, s/48
				fails := func(apply func() error) error {
					if outcome == 1 {
						return context.DeadlineExceeded
					}
					return errors.Join(context.DeadlineExceeded, apply())
				}
				if outcome > 0 {
					w.fails.Store(&fails)
				}
				if u, ok := made[level]; ok { // the change finds out, because it reads first
					may[level] = map[weir.OnUnavailable]bool{u: true}
					delete(made, level)
				}
				before := w.commits.Load()
				err := b.SetOnUnavailable(b.ctx, scopes[level], policy)
				w.fails.Store(nil)
				switch {
				case w.commits.Load() == before: // already set: nothing was committed
					read()
				case err != nil:
					may[level][policy] = true
					vague = vague || gone[level]
					switch {
					case outcome == 2 && policy != unset:
						made[level] = policy
					case outcome == 2: // for a deleted record, the applied value cannot be determined; the stricter value may count for longer
						vague = true
					}
				default:
					if now, err := b.Limits(b.ctx, scopes[level]); err == nil && now.OnUnavailable != policy {
						r.Errorf("set %q, and it is %q", policy, now.OnUnavailable)
					}
					may[level] = map[weir.OnUnavailable]bool{policy: true}
					gone[level] = gone[level] || policy == unset
				}
				if then == 0 {
					continue
				}
				b.fake.does(dark)
				if got, want := b.answer("alice"), strictest(); order[got] < order[want] || got != want && !vague {
					r.Errorf("%s, want %s of %v, else %s", got, want, may, config)
				}
				b.fake.does(recovers)
				if then == 1 { // the next change does not know more than this one either
					continue
				}
				read()
			}
		}, func(c *weir.Config) { c.OnUnavailable, c.Cooldown, c.Observer = config, -1, nil })
	})
}

// TestFlapsAndChanges: a store that comes and goes while limits change, and some changes fail, costs a few bursts at most.
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
				_ = fleet[by].SetLimits(t.Context(), weir.Scope{}, weir.PerSecond("rps", rate))
				w.fails.Store(nil)
			}
			const most = 20
			set(0, 10, 0)
			allowed, admitted, rate := 10., 0, int64(10)
			run := func(d time.Duration, may int64) { // may is the highest rate allowed, a second
				for end := time.Now().Add(d); time.Now().Before(end); {
					began := time.Now()
					for _, lim := range fleet {
						if _, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}}); err == nil {
							admitted++
						}
					}
					time.Sleep(20 * time.Millisecond)
					allowed += time.Since(began).Seconds() * float64(may)
				}
			}
			for i, s := range all {
				was := rate
				set(i%2, s.rate, s.outcome)
				if s.outcome != 1 {
					rate = s.rate
				}
				may := max(was, rate) // the other limiter has read the change within a second
				run(s.up, may)
				o.dark.Store(true)
				run(s.down, may)
				o.dark.Store(false)
			}
			if float64(admitted) > allowed+5*most {
				r.Errorf("admitted %d, of at most %.0f", admitted, allowed)
			}
		})
	})
}
