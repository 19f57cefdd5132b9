package disk_test

import (
	"errors"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

var parallel = store.Slots("parallel", 3000, 30*time.Second)

// hold takes slots, and returns what is held.
func (r *rig) hold(s *disk.Store, slots int64) *store.Hold {
	r.Helper()
	out, err := s.Take(r.Context(), store.Take{Debits: []store.Debit{debit(alice, parallel, slots)}})
	r.must(err)
	if !out.Allowed {
		r.Fatal("refused")
	}
	return out.Levels[0].Hold
}

// change renews slots, or gives them back if they are negative.
func (r *rig) change(s *disk.Store, slots int64, h *store.Hold) store.Level {
	r.Helper()
	d := debit(alice, parallel, slots)
	d.Charges[0].Hold = h
	out, err := s.Settle(r.Context(), store.Settle{Debits: []store.Debit{d}})
	r.must(err)
	return out.Levels[0]
}

// TestSlotsDurable checks that no crash frees slots that somebody holds, where answers wait for the file: neither those
// of a take, nor those of a renewal.
func TestSlotsDurable(t *testing.T) {
	t.Parallel()
	for _, mode := range []disk.Mode{disk.Ahead, disk.Always} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := setup(t, mode)
			s := r.open()
			for range 10 { // as much as a reservation would be based on
				r.change(s, -1, r.hold(s, 1))
			}
			old := r.hold(s, 2)
			x := r.crashed()
			x.wantLeft(x.open(), alice, parallel, 1)
			r.clock.Advance(old.Valid - time.Second)
			held := r.change(s, 2, old).Hold
			x = r.crashed()
			x.clock.Set(held.End.Add(-1))
			xs := x.open()
			x.wantLeft(xs, alice, parallel, 1)
			if again := x.change(xs, 2, held); again.Refused {
				t.Error("cannot be renewed after a crash")
			}
			x.change(xs, -1, held)
			x.wantLeft(xs, alice, parallel, 2)
		})
	}
}

// TestSlotsKept checks that a file keeps what is held, and that versions that have no limits of slots refuse it from then
// on.
func TestSlotsKept(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := setup(t, mode)
			s := r.open()
			h := r.hold(s, 2)
			r.close(s)
			r.wantFormat(3)
			s = r.open()
			if l := r.state(s, alice).Limits[0].Limit; *l != *parallel {
				t.Errorf("the limit is %+v, want %+v", *l, *parallel)
			}
			r.allow(s, debit(bob, quota("usd", 10, "month@UTC"), 1))
			r.change(s, -1, h)
			r.close(s)
			r.wantFormat(3)
			r.clock.Set(h.End.Add(-1))
			s = r.open()
			r.wantLeft(s, alice, parallel, 2)
			r.clock.Advance(1)
			r.wantLeft(s, alice, parallel, 3)
		})
	}
}

// TestSlotsNotWritten checks that a take that could not be written holds nothing.
func TestSlotsNotWritten(t *testing.T) {
	t.Parallel()
	for _, mode := range []disk.Mode{disk.Ahead, disk.Always} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := setup(t, mode)
			s := r.open()
			var full atomic.Bool
			s.Commits(func(commit func() error) error {
				if full.Load() {
					return &fs.PathError{Op: "write", Err: syscall.ENOSPC}
				}
				return commit()
			})
			r.hold(s, 1)
			full.Store(true)
			_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(alice, parallel, 2)}})
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("error %v", err)
			}
			full.Store(false)
			r.wantLeft(s, alice, parallel, 2)
			r.hold(s, 2)
		})
	}
}
