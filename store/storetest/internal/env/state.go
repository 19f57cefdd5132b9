package env

import (
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// Peek reads buckets after their background work.
func (e *Env) Peek(buckets ...store.Bucket) store.Snapshot {
	e.Helper()
	e.Quiesce()
	snap, err := e.Store.Peek(e.Context(), buckets...)
	if err != nil {
		e.Fatalf("peek: %v", err)
	}
	if len(snap.States) != len(buckets) {
		e.Fatalf("peek: %d states of %d buckets", len(snap.States), len(buckets))
	}
	for i, s := range snap.States {
		if s.Bucket != buckets[i] {
			e.Fatalf("peek: state %d is of %v, want %v", i, s.Bucket, buckets[i])
		}
		if s.ID == 0 && len(s.Limits) > 0 {
			e.Fatalf("peek: %v does not exist, yet has limits", s.Bucket)
		}
	}
	return snap
}

// State returns one bucket's state and the store's time.
func (e *Env) State(b store.Bucket) (store.State, time.Time) {
	e.Helper()
	snap := e.Peek(b)
	return snap.States[0], snap.At
}

// Now returns the store's time.
func (e *Env) Now() time.Time {
	e.Helper()
	snap, err := e.Store.Peek(e.Context())
	if err != nil {
		e.Fatalf("peek: %v", err)
	}
	return snap.At
}

// Meter returns a limit's state in a bucket; nil if the bucket does not have the limit.
func (e *Env) Meter(b store.Bucket, l *store.Limit) *store.LimitState {
	e.Helper()
	st, _ := e.State(b)
	return reckon.Find(st, l)
}

// Available returns what may be debited of a limit, according to the bucket's own parameters.
func (e *Env) Available(b store.Bucket, l *store.Limit) int64 {
	e.Helper()
	st, now := e.State(b)
	if m := reckon.Find(st, l); m != nil {
		return reckon.Room(m.Limit, m.Level, now)
	}
	return reckon.Room(l, reckon.Fresh(l, now), now)
}

// WantTokens checks how many tokens may be debited of a limit.
func (e *Env) WantTokens(b store.Bucket, l *store.Limit, tokens int64) {
	e.Helper()
	e.WantRoom(b, l, tokens*Token)
}

// WantRoom is WantTokens in millitokens.
func (e *Env) WantRoom(b store.Bucket, l *store.Limit, millitokens int64) {
	e.Helper()
	if got := e.Available(b, l); got != millitokens {
		e.Fatalf("%v %s: available %d millitokens, want %d", b, l.Name, got, millitokens)
	}
}

// WantDebt checks what is outstanding of a limit after a change, which may cost a millitoken but never grants one.
func (e *Env) WantDebt(b store.Bucket, l *store.Limit, want int64) {
	e.Helper()
	st, now := e.State(b)
	m := reckon.Find(st, l)
	if m == nil {
		e.Fatalf("%v has no limit %s", b, l.Name)
	}
	if *m.Limit != *l {
		e.Fatalf("%v follows %+v, want %+v", b, *m.Limit, *l)
	}
	if got := reckon.Outstanding(m.Limit, m.Level, now); got < want || got > want+1 {
		e.Fatalf("%v %s: %d millitokens outstanding, want %d", b, l.Name, got, want)
	}
}

// WantCounts checks a limit's counters. If a store takes several buckets in several steps, what a refused take debited
// and returned may count on both sides.
func (e *Env) WantCounts(b store.Bucket, l *store.Limit, debited, returned int64) {
	e.Helper()
	m := e.Meter(b, l)
	if m == nil {
		e.Fatalf("%v has no limit %s", b, l.Name)
	}
	d, r := m.Debited, m.Returned
	if !e.Harness.Caps.AtomicTake && d-debited == r-returned && d >= debited {
		return
	}
	if d != debited || r != returned {
		e.Fatalf("%v %s: debited %d returned %d, want %d and %d", b, l.Name, d, r, debited, returned)
	}
}

// WantedLevel is what a level must show: its limit, what may still be debited in millitokens, and whether it refused.
type WantedLevel struct {
	limit   *store.Limit
	room    int64
	refused bool
}

// Level returns a level for WantLevels.
func Level(l *store.Limit, room int64, refused bool) WantedLevel {
	return WantedLevel{limit: l, room: room, refused: refused}
}

// WantLevels checks the levels of an outcome, all of them and in this order.
func (e *Env) WantLevels(out store.Outcome, want ...WantedLevel) {
	e.Helper()
	if len(out.Levels) != len(want) {
		e.Fatalf("%d levels, want %d: %s", len(out.Levels), len(want), Show(out))
	}
	for i, w := range want {
		l := out.Levels[i]
		if l.Limit == nil || *l.Limit != *w.limit {
			e.Fatalf("level %d is of %+v, want %+v", i, l.Limit, *w.limit)
		}
		if got := reckon.Room(l.Limit, l.Level, out.At); got != w.room || l.Refused != w.refused {
			e.Fatalf(
				"level %d (%s): available %d refused %t, want %d %t", i, w.limit.Name, got, l.Refused, w.room,
				w.refused,
			)
		}
	}
}
