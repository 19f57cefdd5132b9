package weir_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// readsCounted counts the reads of a catalog.
type readsCounted struct {
	store.Store
	n int
}

func (c *readsCounted) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	c.n++
	return c.Store.Get(ctx, keys...)
}

// phased returns a limiter over a store on the machine's clock, which is that of a synctest bubble, and counts reads.
func phased(t *testing.T) (*bundle, *readsCounted) {
	t.Helper()
	time.Sleep(time.Until(time.Date(2026, time.November, 30, 9, 0, 0, 0, time.UTC))) // real time: none, in a bubble
	counted := &readsCounted{Store: memory.New(nil)}
	return setupOn(t, &fakeStore{Store: counted}, nil, func(c *weir.Config) { c.CacheTTL = 1e4 * time.Hour }), counted
}

// in returns an instant some time from now.
func in(d time.Duration) admin.Instant { return admin.InstantOf(time.Now().Add(d)) }

// spend takes one token after another, and returns how many there were.
func (b *bundle) spend(entity, limit string, tokens int) (n int64) {
	b.t.Helper()
	for range tokens {
		_, err := b.Acquire(b.ctx, weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{limit: 1}})
		if err != nil && !errors.Is(err, weir.ErrExceeded) {
			b.t.Fatal(err)
		}
		if err == nil {
			n++
		}
	}
	return n
}

// TestPhases: limits that begin and end apply from the instant on, without a read, in whatever scope they are.
func TestPhases(t *testing.T) {
	t.Parallel()
	for _, p := range precedence {
		t.Run(string(p.source), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, reads := phased(t)
				if p.scope.Plan != "" {
					must(t, b.admin.Limits.Set(b.ctx, admin.Scope{Plan: "pro"}, weir.PerMinute("rpm", 1)))
					must(t, b.admin.Entities.Create(b.ctx, admin.Entity{ID: "alice", Plan: "pro"}))
				}
				must(t, b.admin.Limits.Set(b.ctx, p.scope, weir.PerMinute("rpm", 60)))
				must(t, b.admin.Limits.SetBounded(b.ctx, p.scope, admin.Bounded{
					From: in(time.Hour), Until: in(2 * time.Hour), Limits: []weir.Limit{weir.PerMinute("rpm", 600)},
				}))
				must(t, b.admin.Limits.SetBounded(b.ctx, p.scope, admin.Bounded{From: in(3 * time.Hour), Scale: 10}))
				b.wantLeft("alice", weir.Tokens{"rpm": 60})
				read := reads.n
				for hour, want := range []int64{60, 600, 60, 600} {
					if got := b.spend("alice", "rpm", 1000); got != want {
						t.Errorf("hour %d: %d admitted, want %d", hour, got, want)
					}
					time.Sleep(time.Hour - time.Nanosecond)
					b.wantLeft("alice", weir.Tokens{"rpm": want})
					time.Sleep(time.Nanosecond)
				}
				if reads.n != read {
					t.Errorf("%d reads", reads.n-read)
				}
			})
		})
	}
}

// TestPhasesFromNothing: a scope that has limits for some time only takes precedence meanwhile, also on a parent that is
// not charged otherwise.
func TestPhasesFromNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := phased(t)
		b.chain("alice", "team")
		must(t, b.admin.Limits.Set(b.ctx, admin.Scope{Entity: "alice"}, weir.PerMinute("rpm", 60)))
		for sc, amount := range map[admin.Scope]int64{
			{Entity: "alice", Resource: "api"}: 600, {Entity: "team", Resource: weir.TotalResource}: 100,
		} {
			must(t, b.admin.Limits.SetBounded(b.ctx, sc, admin.Bounded{
				From: in(time.Hour), Until: in(2 * time.Hour), Limits: []weir.Limit{weir.PerMinute("rpm", amount)},
			}))
		}
		for hour, want := range []int64{60, 100, 60} {
			if got := b.spend("alice", "rpm", 1000); got != want {
				t.Errorf("hour %d: %d admitted, want %d", hour, got, want)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestPhasesBoost: after a boost that ended, nothing is left of the month if as much was spent, and the next is full.
// What was spent of 3,000 a month leaves the whole of 100 a day tomorrow.
func TestPhasesBoost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := phased(t)
		limit := func(text string) weir.Limit {
			l, err := weir.ParseLimit(text)
			must(t, err)
			return l
		}
		friday := time.Date(2026, time.December, 4, 17, 0, 0, 0, time.UTC)
		boosted, changed := admin.Scope{Entity: "boosted"}, admin.Scope{Entity: "changed"}
		must(t, b.admin.Limits.Set(b.ctx, boosted, limit("usd:5000/month@Europe/Berlin")))
		must(t, b.admin.Limits.SetBounded(b.ctx, boosted, admin.Bounded{Until: admin.InstantOf(friday), Scale: 10}))
		must(t, b.admin.Limits.Set(b.ctx, changed, limit("usd:3000/month@UTC")))
		must(t, b.admin.Limits.SetBounded(b.ctx, changed, admin.Bounded{
			From: admin.InstantOf(friday), Limits: []weir.Limit{limit("usd:100/day@UTC")},
		}))
		time.Sleep(24 * time.Hour)
		b.take("boosted", weir.Tokens{"usd": 20_000})
		b.take("changed", weir.Tokens{"usd": 2900})
		over := b.refused("boosted", weir.Tokens{"usd": 40_000})
		if want := time.Until(friday); over.RetryAfter != want {
			t.Errorf("retry after %v, want %v: the boost ends", over.RetryAfter, want)
		}
		time.Sleep(time.Until(friday))
		b.wantLeft("boosted", weir.Tokens{"usd": 0})
		b.refused("changed", weir.Tokens{"usd": 1})
		b.refused("boosted", weir.Tokens{"usd": 1})
		time.Sleep(7 * time.Hour)
		b.take("changed", weir.Tokens{"usd": 100})
		b.refused("boosted", weir.Tokens{"usd": 1})
		time.Sleep(time.Until(time.Date(2026, time.December, 31, 23, 0, 0, 0, time.UTC)))
		b.take("boosted", weir.Tokens{"usd": 5000})
		b.refused("boosted", weir.Tokens{"usd": 1})
	})
}

// TestPhasesWait: a call of Wait that a limit would hold back for long is served when a larger limit begins.
func TestPhasesWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := phased(t)
		alice := admin.Scope{Entity: "alice"}
		must(t, b.admin.Limits.Set(b.ctx, alice, weir.PerDay("rpm", 10)))
		must(t, b.admin.Limits.SetBounded(b.ctx, alice, admin.Bounded{From: in(time.Minute), Scale: 10}))
		b.take("alice", weir.Tokens{"rpm": 10})
		began := time.Now()
		ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
		defer cancel()
		_, err := b.Wait(ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 5}})
		if took := time.Since(began); err != nil || took != time.Minute {
			t.Errorf("waited %v, %v", took, err)
		}
	})
}

// TestPhasesEarly: limits that are removed or replaced before they end are no longer in force, and later ones follow.
func TestPhasesEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := phased(t)
		other := setupOn(t, b.fake, nil, func(c *weir.Config) { c.CacheTTL = time.Minute })
		alice := admin.Scope{Entity: "alice", Resource: "api"}
		must(t, b.admin.Limits.Set(b.ctx, alice, weir.PerMinute("rpm", 60)))
		want := func(tokens int64) {
			t.Helper()
			time.Sleep(time.Hour) // the buckets are full
			for _, of := range []*bundle{b, other} {
				of.take("alice", weir.Tokens{"rpm": 1})
				time.Sleep(time.Minute)
				of.wantLeft("alice", weir.Tokens{"rpm": tokens})
			}
		}
		want(60)
		must(t, b.admin.Limits.SetBounded(b.ctx, alice, admin.Bounded{Until: in(100 * time.Hour), Scale: 10}))
		want(600)
		must(t, b.admin.Limits.SetBounded(b.ctx, alice, admin.Bounded{Until: in(50 * time.Hour), Scale: 2}))
		want(120)
		must(t, b.admin.Limits.DeleteBounded(b.ctx, alice))
		want(60)
		must(t, b.admin.Limits.SetBounded(b.ctx, alice, admin.Bounded{From: in(time.Hour), Until: in(2 * time.Hour), Scale: 3}))
		want(180)
		want(60)
		must(t, b.admin.Limits.Delete(b.ctx, alice))
		must(t, b.admin.Limits.Set(b.ctx, admin.Scope{Resource: "api"}, weir.PerMinute("rpm", 7)))
		want(7)
	})
}

// TestPhasesExplained: an explanation has what applies next, which then does, in the zone that it is written in.
func TestPhasesExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := phased(t)
		b.chain("alice", "team")
		must(t, b.admin.Limits.Set(b.ctx, admin.Scope{Resource: "api"}, weir.PerMinute("rpm", 60)))
		berlin := admin.Instant{}
		must(t, berlin.UnmarshalText([]byte("2026-12-04T18:00@Europe/Berlin")))
		for _, set := range []struct {
			scope admin.Scope
			to    admin.Bounded
		}{
			{admin.Scope{Resource: "api"}, admin.Bounded{Until: in(2 * time.Hour), Scale: 10}},
			{admin.Scope{Entity: "alice"}, admin.Bounded{
				From: in(time.Hour), Until: berlin, Limits: []weir.Limit{{Name: "rpm", Amount: 7, Period: time.Hour, Enforce: weir.EnforceShadow}},
			}},
			{admin.Scope{Entity: "team", Resource: weir.TotalResource}, admin.Bounded{
				From: in(time.Hour), Limits: []weir.Limit{weir.PerDay("rpm", 100)},
			}},
		} {
			must(t, b.admin.Limits.SetBounded(b.ctx, set.scope, set.to))
		}
		own := weir.Request{Entity: "alice", Resource: "api", Limits: []weir.Limit{weir.PerDay("rpm", 1)}}
		if x, err := b.Explain(b.ctx, own); err != nil || len(x.Chain[0].Next) != 0 || len(x.Chain[1].Next) != 2 {
			t.Errorf("a request with limits of its own: %+v, %v", x.Chain, err)
		}
		var steps []string
		var at time.Time // the next change
		var want map[string]string
		for {
			x, err := b.Explain(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
			must(t, err)
			now, next := map[string]string{}, map[string]map[string]string{}
			for _, n := range x.Chain {
				for _, l := range n.Limits {
					now[n.ID+" "+l.Status.Resource] = fmt.Sprintf("%v %v %v", l.Status.Source, l.Limit, l.Limit.Enforce)
				}
				for _, ch := range n.Next {
					text := ch.From.Format(time.RFC3339)
					if next[text] == nil {
						next[text] = map[string]string{}
					}
					to := fmt.Sprintf("%v %v %v", ch.Source, ch.Limits[0], ch.Limits[0].Enforce)
					next[text][n.ID+" "+cmp.Or(ch.Resource, "api")] = to
					if !at.After(time.Now()) || ch.From.Before(at) {
						at = ch.From
					}
				}
			}
			for to, limits := range want {
				if now[to] != limits {
					t.Errorf("%s: %q, want %q", to, now[to], limits)
				}
			}
			if len(next) == 0 {
				break
			}
			want = next[at.Format(time.RFC3339)]
			steps = append(steps, fmt.Sprint(at.Format("02 15:04 MST"), " ", want))
			time.Sleep(time.Until(at))
		}
		wanted := []string{
			"30 10:00 UTC map[alice api:entity-default rpm:7/hour shadow team _total_:entity rpm:100/day on]",
			"30 11:00 UTC map[team api:resource rpm:60/min on]", "04 18:00 CET map[alice api:resource rpm:60/min on]",
		}
		if !slices.Equal(steps, wanted) {
			t.Errorf("%q", steps)
		}
	})
}

// TestPhasesMistakes: what cannot be is refused, with its field and what to do.
func TestPhasesMistakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := phased(t)
		alice, prepaid := admin.Scope{Entity: "alice", Resource: "api"}, admin.Scope{Entity: "prepaid", Resource: "api"}
		rpm := []weir.Limit{weir.PerMinute("rpm", 60)}
		must(t, b.admin.Limits.Set(b.ctx, alice, rpm...))
		must(t, b.admin.Limits.Set(b.ctx, prepaid, weir.Limit{Name: "credits", Balance: true}))
		must(t, b.admin.Limits.SetBounded(b.ctx, alice, admin.Bounded{From: in(time.Hour), Until: in(2 * time.Hour), Scale: 2}))
		for name, c := range map[string]struct {
			scope         admin.Scope
			set           admin.Bounded
			field, remedy string
		}{
			"neither":              {alice, admin.Bounded{Scale: 2}, "until", "missing"},
			"ends before it was":   {alice, admin.Bounded{Until: in(-time.Second), Scale: 2}, "until", "passed"},
			"ends before it began": {alice, admin.Bounded{From: in(5 * time.Hour), Until: in(4 * time.Hour), Scale: 2}, "until", "after from"},
			"overlaps":             {alice, admin.Bounded{Until: in(90 * time.Minute), Scale: 2}, "from", "remove the others first"},
			"overlaps, for ever":   {alice, admin.Bounded{From: in(90 * time.Minute), Limits: rpm}, "from", "remove the others first"},
			"both":                 {alice, admin.Bounded{Until: in(time.Minute), Scale: 2, Limits: rpm}, "scale", "either"},
			"nothing":              {alice, admin.Bounded{Until: in(time.Minute)}, "limits", "at least one"},
			"too much":             {alice, admin.Bounded{Until: in(time.Minute), Scale: 1001}, "scale", "1000"},
			"nothing to scale":     {admin.Scope{Entity: "bob"}, admin.Bounded{Until: in(time.Minute), Scale: 2}, "scale", "give limits instead"},
			"a balance":            {alice, admin.Bounded{Until: in(time.Minute), Limits: []weir.Limit{{Name: "credits", Balance: true}}}, "limit credits", "scale"},
			"hides a balance":      {prepaid, admin.Bounded{Until: in(time.Minute), Limits: rpm}, "limits", "use scale"},
		} {
			err := b.admin.Limits.SetBounded(b.ctx, c.scope, c.set)
			wantConfigError(t, err, c.field)
			if err != nil && !strings.Contains(err.Error(), c.remedy) {
				t.Errorf("%s: %v, want %q", name, err, c.remedy)
			}
		}
	})
}
