package torture_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/lab/torture"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// broken is a store that misbehaves.
type broken struct {
	store.Store

	take   func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error)
	settle func(s store.Store, ctx context.Context, t store.Settle) (store.Outcome, error)
	credit func(s store.Store, ctx context.Context, c store.Credit) (store.Credited, error)
	peek   func(snap *store.Snapshot)
}

func (b *broken) Credit(ctx context.Context, c store.Credit) (store.Credited, error) {
	if b.credit != nil {
		return b.credit(b.Store, ctx, c)
	}
	return b.Store.Credit(ctx, c)
}

func (b *broken) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if b.take != nil {
		return b.take(b.Store, ctx, t)
	}
	return b.Store.Take(ctx, t)
}

func (b *broken) Settle(ctx context.Context, t store.Settle) (store.Outcome, error) {
	if b.settle != nil {
		return b.settle(b.Store, ctx, t)
	}
	return b.Store.Settle(ctx, t)
}

func (b *broken) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	snap, err := b.Store.Peek(ctx, buckets...)
	if b.peek != nil && err == nil {
		b.peek(&snap)
	}
	return snap, err
}

// changed returns a take with changed charges.
func changed(t store.Take, change func(*store.Debit, *store.Charge)) store.Take {
	debits := make([]store.Debit, len(t.Debits))
	for i, d := range t.Debits {
		charges := d.Charges
		d.Charges = nil
		for _, c := range charges {
			change(&d, &c)
			d.Charges = append(d.Charges, c)
		}
		debits[i] = d
	}
	return store.Take{Debits: debits}
}

// broke is a sound store that is broken only where it is frugal.
func broke(b *broken) (torture.Opener, torture.Traits) {
	sound := memory.New(&memory.Config{})
	b.Store = open{sound}
	traits := inMemory
	traits.Shared, traits.Frugal = true, true
	return func(_ func() time.Time, frugal bool) (store.Store, error) {
		if frugal {
			return whole{b}, nil
		}
		return open{sound}, nil
	}, traits
}

// open is a store that is never closed, because several share it.
type open struct{ store.Store }

func (open) Close() error { return nil }

// whole is a store that splits no bucket, whoever wants it to.
type whole struct{ store.Store }

func (whole) Split(context.Context, store.Bucket, int) (int, error) { return 1, nil }

// direct reports whether a take is of the one bucket whose calls are ordered.
func direct(t store.Take) bool { return t.Debits[0].Bucket.Entity == "ordered" }

// chain reports whether a take is of a child and its parent.
func chain(t store.Take) bool { return len(t.Debits) > 1 }

// every returns a function that returns true on every n-th call.
func every(n int64) func() bool {
	var calls atomic.Int64
	return func() bool { return calls.Add(1)%n == 0 }
}

// Each check detects a store that breaks its promise.
func TestBroken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		breaks func() *broken
		check  string
		frugal bool // only where the store saves calls
	}{
		{name: "admits one too many", check: "order", breaks: func() *broken {
			now := every(5)
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				out, err := s.Take(ctx, t)
				if err != nil || out.Allowed || !direct(t) || !now() {
					return out, err
				}
				return s.Take(ctx, changed(t, func(_ *store.Debit, c *store.Charge) { c.Force = true }))
			}}
		}},
		{name: "returns twice", check: "order", breaks: func() *broken {
			return &broken{settle: func(s store.Store, ctx context.Context, t store.Settle) (store.Outcome, error) {
				if _, err := s.Settle(ctx, t); err != nil || t.ID != "" {
					return store.Outcome{}, err
				}
				return s.Settle(ctx, t)
			}}
		}},
		{name: "loses a debit", check: "order", breaks: func() *broken {
			now := every(20)
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				out, err := s.Take(ctx, t)
				if err == nil && out.Allowed && direct(t) && now() {
					d := changed(t, func(_ *store.Debit, c *store.Charge) { c.Amount, c.Force = -c.Amount, false }).Debits
					_, err = s.Settle(ctx, store.Settle{Debits: d})
				}
				return out, err
			}}
		}},
		{name: "admits all of a chain", check: "admitted", breaks: func() *broken {
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				return s.Take(ctx, changed(t, func(_ *store.Debit, c *store.Charge) { c.Force = c.Force || chain(t) }))
			}}
		}},
		{name: "loses a debit of a chain", check: "books", breaks: func() *broken {
			now := every(50)
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				lose := chain(t) && now()
				return s.Take(ctx, changed(t, func(_ *store.Debit, c *store.Charge) {
					if lose {
						c.Amount = 0
					}
				}))
			}}
		}},
		{name: "admits everything while it saves calls", check: "admitted", frugal: true, breaks: func() *broken {
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				return s.Take(ctx, changed(t, func(_ *store.Debit, c *store.Charge) { c.Force = true }))
			}}
		}},
		{name: "loses debits while it saves calls", check: "books", frugal: true, breaks: func() *broken {
			now := every(20)
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				lose := now()
				return s.Take(ctx, changed(t, func(_ *store.Debit, c *store.Charge) {
					if lose {
						c.Amount = 0
					}
				}))
			}}
		}},
		{name: "a lease's tokens come back twice", check: "books", breaks: func() *broken {
			return &broken{settle: func(s store.Store, ctx context.Context, t store.Settle) (store.Outcome, error) {
				out, err := s.Settle(ctx, t)
				if err == nil && t.ID != "" && len(t.Debits) > 1 {
					t.ID = ""
					_, err = s.Settle(ctx, t)
				}
				return out, err
			}}
		}},
		{name: "a level drifts from its counters", check: "level", breaks: func() *broken {
			return &broken{peek: func(snap *store.Snapshot) {
				for i := range snap.States {
					for j := range snap.States[i].Limits {
						if l := &snap.States[i].Limits[j]; len(snap.States) > 1 && l.Limit.Name == "ledger" {
							l.Level -= (l.Debited - l.Returned) / 10_000
						}
					}
				}
			}}
		}},
		{name: "a credit adds again when it is repeated", check: "level", breaks: func() *broken {
			var n atomic.Int64
			return &broken{credit: func(s store.Store, ctx context.Context, c store.Credit) (store.Credited, error) {
				c.ID = fmt.Sprint(n.Add(1))
				return s.Credit(ctx, c)
			}}
		}},
		{name: "spends more than was credited", check: "books", breaks: func() *broken {
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				return s.Take(ctx, changed(t, func(_ *store.Debit, c *store.Charge) {
					c.Force = c.Force || c.Limit.IsBalance()
				}))
			}}
		}},
		{name: "admits more than a quota has in a window", check: "admitted", breaks: func() *broken {
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				return s.Take(ctx, changed(t, func(_ *store.Debit, c *store.Charge) {
					c.Force = c.Force || c.Limit.Window != (calendar.Window{})
				}))
			}}
		}},
		{name: "charges the child alone, and fails", check: "parents", breaks: func() *broken {
			now := every(50)
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				if !chain(t) || !now() {
					return s.Take(ctx, t)
				}
				_, err := s.Take(ctx, changed(t, func(d *store.Debit, c *store.Charge) {
					if c.Force = true; d.Bucket.Entity == "parent" {
						c.Amount = 0
					}
				}))
				return store.Outcome{}, errors.Join(&store.Error{Op: "take", Err: context.DeadlineExceeded}, err)
			}}
		}},
		{name: "a lease is given back by all who try", check: "once", breaks: func() *broken {
			return &broken{settle: func(s store.Store, ctx context.Context, t store.Settle) (store.Outcome, error) {
				if t.ID, t.Expires = "", (time.Time{}); len(t.Debits) == 0 {
					return store.Outcome{Allowed: true}, nil
				}
				return s.Settle(ctx, t)
			}}
		}},
		{name: "a lease is given back by nobody", check: "once", breaks: func() *broken {
			return &broken{settle: func(s store.Store, ctx context.Context, t store.Settle) (store.Outcome, error) {
				if t.ID != "" {
					return store.Outcome{}, store.ErrSettled
				}
				return s.Settle(ctx, t)
			}}
		}},
		{name: "goes back in time", check: "time", breaks: func() *broken {
			now := every(100)
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				out, err := s.Take(ctx, t)
				if now() {
					out.At = out.At.Add(-time.Second)
				}
				return out, err
			}}
		}},
		{name: "forgets", check: "books", breaks: func() *broken {
			now := every(300)
			return &broken{take: func(s store.Store, ctx context.Context, t store.Take) (store.Outcome, error) {
				if chain(t) && now() {
					if err := s.Forget(ctx, t.Debits[0].Bucket); err != nil {
						return store.Outcome{}, err
					}
				}
				return s.Take(ctx, t)
			}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := tt.breaks()
			cfg := config(t, func(s store.Store) store.Store { b.Store = s; return b })
			if tt.frugal {
				cfg.Open, cfg.Traits = broke(b)
			}
			cfg.Faults = []torture.Fault{torture.Duplicate}
			rep, err := torture.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if rep.OK {
				t.Fatalf("passed in %d rounds of %d calls", rep.Rounds, rep.Calls)
			}
			found := false
			for _, c := range rep.Checks {
				switch {
				case c.Failure == "":
				case c.Name == tt.check, c.Name == "admitted" && tt.check == "books":
					found = true // what is lost is also admitted again: either check may notice it first
				default:
					t.Errorf("%s: %q, want %s to fail", c.Name, c.Failure, tt.check)
				}
			}
			if !found {
				t.Errorf("%s does not fail", tt.check)
			}
			checkHistory(t, rep)
		})
	}
}

// checkHistory checks that the history contains what the excerpt shows.
func checkHistory(t *testing.T, rep *torture.Report) {
	t.Helper()
	if n := len(rep.Excerpt); n == 0 || n > 16 {
		t.Errorf("an excerpt of %d calls", n)
	}
	f, err := os.Open(rep.History)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := map[string]bool{}
	for in := bufio.NewScanner(f); in.Scan(); {
		var r torture.Record
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		lines[r.String()] = true
	}
	for _, r := range rep.Excerpt {
		if !lines[r.String()] {
			t.Errorf("not in the history: %s", r)
		}
	}
}
