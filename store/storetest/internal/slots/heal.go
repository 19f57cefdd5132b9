package slots

import (
	"math"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func heals(e *Env) {
	b, l := Bucket("alice", "api"), Slots("parallel", 3)
	e.Clock.Advance(time.Duration(math.MaxUint8) * time.Second)
	lost := hold(e, e.Allow(Debit(b, Charge(l, 2))), 0)
	e.Clock.Advance(time.Second)
	for range 10 { // others come and go
		h := hold(e, e.Allow(Debit(b, Charge(l, 1))), 0)
		e.Refuse(Debit(b, Charge(l, 1)))
		e.Settle(Debit(b, GiveBack(l, 1, h)))
	}
	e.Clock.Set(lost.End.Add(-1))
	e.Refuse(Debit(b, Charge(l, 2)))
	e.Clock.Advance(2 * skew)
	if out := e.Settle(Debit(b, Renew(l, 2, lost))); !out.Levels[0].Refused || out.Levels[0].Hold != nil {
		e.Errorf("renewed after its end: %+v", out.Levels[0])
	}
	e.Allow(Debit(b, Charge(l, 3)))
	e.Settle(Debit(b, GiveBack(l, 2, lost)))
	e.Refuse(Debit(b, Charge(l, 1)))
	e.WantRoom(b, l, 0)
	e.Clock.Advance(2*heal + 2*skew)
	e.WantTokens(b, l, 3)
}

// nextEnd checks that NextEnd is when the next slots come back, whether others are held or renewed meanwhile.
func nextEnd(e *Env) {
	b, l := Bucket("alice", "api"), Slots("parallel", 9)
	shown := func(after time.Time, held int64) (end time.Time) {
		e.Helper()
		e.WantTokens(b, l, 9-held)
		if m := e.Meter(b, l); m != nil {
			end = m.NextEnd
		}
		if late := end.Sub(after); late < 0 || late > skew || end.IsZero() != (held == 0) {
			e.Fatalf("%d are held until %v, want %v", held, end, after)
		}
		return end
	}
	first := hold(e, e.Allow(Debit(b, Charge(l, 2))), 0)
	shown(first.End, 2)
	e.Clock.Advance(heal)
	second := hold(e, e.Allow(Debit(b, Charge(l, 4))), 0)
	shown(first.End, 6)
	e.Settle(Debit(b, Renew(l, 1, first)))
	end := shown(first.End, 6)
	e.Clock.Set(end.Add(-time.Microsecond))
	shown(first.End, 6)
	e.Clock.Set(end)
	end = shown(second.End, 5)
	e.Clock.Set(end)
	shown(time.Time{}, 0)
	third := hold(e, e.Allow(Debit(b, Charge(l, 1))), 0)
	shown(third.End, 1)
	e.Settle(Debit(b, GiveBack(l, 1, third)))
	shown(time.Time{}, 0)
}

func renewed(e *Env) {
	b, l := Bucket("alice", "api"), Slots("parallel", 3)
	lost := hold(e, e.Allow(Debit(b, Charge(l, 1))), 0)
	h := hold(e, e.Allow(Debit(b, Charge(l, 2))), 0)
	for range 20 {
		e.Clock.Advance(h.Valid / 2)
		out := e.Settle(Debit(b, Renew(l, 2, h)))
		if h = hold(e, out, 0); out.Levels[0].Refused {
			e.Fatalf("refused: %+v", out.Levels[0])
		}
		e.Refuse(Debit(b, Charge(l, 3)))
	}
	if !lost.End.Before(e.Clock.Now()) {
		e.Fatalf("no time passed")
	}
	e.Allow(Debit(b, Charge(l, 1)))
	e.Refuse(Debit(b, Charge(l, 1)))
	e.Settle(Debit(b, GiveBack(l, 2, h)))
	e.WantTokens(b, l, 2)
}

// renewedUnanswered repeats renewals as a holder does that got no answer, and gives back what it has by its old hold.
func renewedUnanswered(e *Env) {
	b, l := Bucket("alice", "api"), Slots("parallel", 5)
	h := hold(e, e.Allow(Debit(b, Charge(l, 2))), 0)
	hold(e, e.Allow(Debit(b, Charge(l, 3))), 0)
	e.Clock.Advance(h.Valid - 3*skew)
	for range 3 {
		if out := e.Settle(Debit(b, Renew(l, 2, h))); out.Levels[0].Level != 5*Token {
			e.Fatalf("renewed: %+v", out.Levels[0])
		}
	}
	e.Settle(Debit(b, GiveBack(l, 2, h)))
	e.WantTokens(b, l, 2)
	e.Allow(Debit(b, Charge(l, 2)))
	e.Refuse(Debit(b, Charge(l, 1)))
	e.Clock.Advance(2*heal + 2*skew)
	e.WantTokens(b, l, 5)
}

// elsewhere renews and gives back from a client that has last seen the bucket before the slots were taken or renewed.
func elsewhere(e *Env) {
	b, l, p := Bucket("alice", "api"), Slots("parallel", 4), e.Peer()
	p.Settle(Debit(b, GiveBack(l, 1, hold(e, p.Allow(Debit(b, Charge(l, 1))), 0))))
	h := hold(e, e.Allow(Debit(b, Charge(l, 2))), 0)
	p.Settle(Debit(b, GiveBack(l, 2, h)))
	e.WantTokens(b, l, 4)
	for _, renewing := range []*Env{p, e} {
		h = hold(e, e.Allow(Debit(b, Charge(l, 2))), 0)
		hold(e, p.Allow(Debit(b, Charge(l, 1))), 0) // and is gone
		e.Clock.Set(h.End.Add(-3 * skew))
		hold(e, e.Allow(Debit(b, Charge(l, 1))), 0)
		if renewed := hold(e, renewing.Settle(Debit(b, Renew(l, 2, h))), 0); !renewed.End.After(h.End) {
			e.Errorf("renewed from %v until %v", h.End, renewed.End)
		}
		e.Settle(Debit(b, GiveBack(l, 2, h))) // by what was held before
		e.WantTokens(b, l, 2)
		e.Clock.Set(h.End.Add(2 * skew)) // the first one that is gone counts as renewed
		e.WantTokens(b, l, 2)
		e.Allow(Debit(b, Charge(l, 2)))
		p.Refuse(Debit(b, Charge(l, 1)))
		e.Clock.Advance(2*heal + 2*skew)
		e.WantTokens(b, l, 4)
	}
	h = hold(e, e.Allow(Debit(b, Charge(l, 2))), 0)
	if out := p.Settle(Debit(b, Renew(l, 2, h))); out.Levels[0].Refused {
		e.Errorf("a renewal of what was taken elsewhere is refused: %+v", out.Levels[0])
	}
}

// kept checks that the store does not forget what is held, however many other buckets come and go.
func kept(e *Env) {
	b, l := Bucket("alice", "api"), Slots("parallel", 2)
	h := hold(e, e.Allow(Debit(b, Charge(l, 1))), 0)
	keeps(e, b, h)
	e.Clock.Set(h.End.Add(-1))
	for i := range e.Some(400) {
		e.Allow(Debit(Bucket("entity", string(rune('A'+i))), Charge(l, 0)))
	}
	e.Refuse(Debit(b, Charge(l, 2)))

	b, l = Bucket("bob", "api"), store.Slots("parallel", Token, time.Hour)
	h = e.Allow(Debit(b, Charge(l, 1))).Levels[0].Hold
	for range 120 { // for 60 hours or more
		e.Clock.Advance(h.Valid / 2)
		if h = e.Settle(Debit(b, Renew(l, 1, h))).Levels[0].Hold; h == nil {
			e.Fatalf("not renewed")
		}
	}
	keeps(e, b, h)
}

// keeps checks that a bucket is kept for as long as a hold lasts, if the harness measures that.
func keeps(e *Env, b store.Bucket, h *store.Hold) {
	e.Helper()
	e.Quiesce()
	left := h.End.Sub(e.Clock.Now())
	if e.Harness.Kept != nil {
		if kept := e.Harness.Kept(e.Outer, e.Store, b); kept < left {
			e.Errorf("kept for %v, held for %v", kept, left)
		}
	}
}
