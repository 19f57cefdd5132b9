package disk_test

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

// TestLoadUnlike checks that a bucket is loaded as it was, whatever the one before it in the file has: limits of slots
// or none, more or fewer limits, the same ones or others.
func TestLoadUnlike(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Off)
	s := r.open()
	rpm := &store.Limit{Name: "rpm", Amount: 9000, Period: time.Hour, Burst: 9000}
	rph := &store.Limit{Name: "rph", Amount: 9000, Period: time.Hour, Burst: 9000}
	var buckets []store.Bucket
	for i, limits := range [][]*store.Limit{{rpm, rph, parallel}, {rpm}, {parallel, rph}, {rph}, {rpm, rph, parallel}, {rpm}} {
		d := store.Debit{Bucket: store.Bucket{Namespace: "n", Entity: fmt.Sprint(i), Resource: "api"}}
		for _, l := range limits {
			d.Charges = append(d.Charges, store.Charge{Limit: l, Amount: 1000})
		}
		out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{d}})
		if r.must(err); !out.Allowed {
			t.Fatalf("bucket %d: refused", i)
		}
		buckets = append(buckets, d.Bucket)
	}
	before, err := s.Peek(t.Context(), buckets...)
	r.must(err)
	r.must(s.Close())
	after, err := r.open().Peek(t.Context(), buckets...)
	if r.must(err); !cmp.Equal(before.States, after.States, cmpopts.EquateComparable(store.Limit{})) {
		t.Error(cmp.Diff(before.States, after.States, cmpopts.EquateComparable(store.Limit{})))
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
