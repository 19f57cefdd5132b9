package weir_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// localPhases runs a test of limits of alice of which others hold for an hour, as one of four processes. It returns how
// many of so many requests for one token were admitted.
func localPhases(
	t *testing.T, limit string, b admin.Bounded, f func(b *bundle, admitted func(requests int) int64),
	change ...func(*weir.Config),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		time.Sleep(time.Until(time.Date(2026, time.November, 30, 9, 0, 0, 0, time.UTC))) // real time: none, in a bubble
		lim := setupOn(t, &fakeStore{Store: memory.New(nil)}, nil, append(change, backstopped(4))...)
		l, err := weir.ParseLimit(limit)
		must(t, err)
		lim.set("alice", "", l)
		b.Until = in(time.Hour)
		must(t, lim.admin.Limits.SetBounded(lim.ctx, admin.Scope{Entity: "alice"}, b))
		f(lim, func(requests int) int64 { return lim.spend("alice", l.Name, requests) })
	})
}

// TestLocalPhaseEnds: without the store, limits that have ended admit nothing more. What was spent of a larger quota is
// spent of the smaller one, too, as in the store.
func TestLocalPhaseEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit           string
		spent           int64 // by another process, while the store answers
		boosted, wanted int64 // admitted by this process before and after the end
	}{
		"quota, unspent":        {"usd:400/month@UTC", 0, 1000, 0},
		"quota, partly spent":   {"usd:400/month@UTC", 1000, 750, 0},
		"quota, hardly spent":   {"usd:400/month@UTC", 40, 0, 90},
		"quota, spent before":   {"usd:400/month@UTC", 2000, 0, 0},
		"rate":                  {"usd:40/h", 0, 0, 10},
		"rate, spent meanwhile": {"usd:40/h", 0, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			localPhases(t, c.limit, admin.Bounded{Scale: 10}, func(b *bundle, admitted func(int) int64) {
				b.peer(backstopped(4)).take("alice", weir.Tokens{"usd": c.spent})
				b.take("alice", nil)                // the store shows what is left
				time.Sleep(time.Hour - time.Minute) // real time: none, in a bubble
				b.fake.does(dark)
				if got := admitted(int(c.boosted)); got != c.boosted {
					t.Errorf("%d admitted before the end, want %d", got, c.boosted)
				}
				time.Sleep(time.Minute) // real time: none, in a bubble
				if got := admitted(1500); got != c.wanted {
					t.Errorf("%d admitted after the end, want %d", got, c.wanted)
				}
				over := b.refused("alice", weir.Tokens{"usd": 1})
				if st := over.Statuses[0]; !over.Degraded || st.Burst != 40 && st.Burst != 400 || over.Over != st.Burst {
					t.Errorf("%+v", over.Decision)
				}
			})
		})
	}
}

// TestLocalPhaseEndsMeanwhile: the limits end while the store is called, which does not answer.
func TestLocalPhaseEndsMeanwhile(t *testing.T) {
	t.Parallel()
	always := func(c *weir.Config) { c.Cooldown = -1 }
	localPhases(t, "rpm:40/h", admin.Bounded{Scale: 10}, func(b *bundle, _ func(int) int64) {
		time.Sleep(time.Hour - time.Second) // real time: none, in a bubble
		b.take("alice", nil)
		time.Sleep(time.Second - 5*time.Millisecond) // real time: none, in a bubble
		b.fake.does(dark)
		req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 41}}
		if _, err := b.Acquire(b.ctx, req); !errors.Is(err, weir.ErrExceedsBurst) {
			t.Errorf("%v, want a refusal by the limits in force", err)
		}
	}, always)
}

// TestAllowPhaseEnds: whether all is allowed without the store does not depend on what begins or ends.
func TestAllowPhaseEnds(t *testing.T) {
	t.Parallel()
	allow := func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow }
	localPhases(t, "rpm:40/h", admin.Bounded{Scale: 10}, func(b *bundle, _ func(int) int64) {
		must(t, b.admin.Limits.SetOnUnavailable(b.ctx, admin.Scope{Entity: "alice"}, weir.OnUnavailableAllow))
		b.take("alice", nil)
		b.fake.does(dark)
		for range 2 {
			for range 20 {
				if d := b.take("alice", weir.Tokens{"rpm": 40}).Decision(); !d.Degraded || d.Over != -1 {
					t.Errorf("%+v", d)
				}
			}
			time.Sleep(time.Hour) // real time: none, in a bubble
		}
		b.fake.does(recovers)
		time.Sleep(b.cfg.StoreTimeout + time.Minute) // real time: none, in a bubble
		b.wantLeft("alice", weir.Tokens{"rpm": 40})
	}, allow)
}
