package disk_test

import (
	"errors"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

func (r *rig) credit(s *disk.Store, tokens int64, id string) (store.Credited, error) {
	r.Helper()
	return s.Credit(r.Context(), store.Credit{Bucket: alice, Limit: "credits", Amount: tokens * 1000, ID: id})
}

// TestCreditDurable checks that no crash takes back a credit that was answered, nor makes one count twice, in any mode.
func TestCreditDurable(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r, l := setup(t, mode), store.Balance("credits")
			s := r.open()
			for i, id := range []string{"inv-1", "inv-2"} {
				if _, err := r.credit(s, 500, id); err != nil {
					t.Fatal(err)
				}
				x := r.crashed()
				xs := x.open()
				if got, err := x.credit(xs, 500, id); err != nil || !got.Before || got.Level != -int64(500+500*i)*1000 {
					t.Fatalf("after a crash: %+v, %v", got, err)
				}
				if _, err := x.credit(xs, 501, id); !errors.Is(err, store.ErrInvalid) {
					t.Fatalf("another amount after a crash: %v", err)
				}
				x.allow(xs, debit(alice, l, int64(500+500*i)))
				if x.take(xs, debit(alice, l, 1)) {
					t.Fatal("more than was credited")
				}
				x.close(xs)
				x.wantFormat(2)
			}
			r.allow(s, debit(alice, l, 300))
			r.close(s)
			s = r.open()
			if got, err := r.credit(s, 500, "inv-1"); err != nil || !got.Before || got.Level != -700_000 {
				t.Errorf("after a restart: %+v, %v", got, err)
			}
		})
	}
}

// TestBalanceExact checks that a crash costs nothing of a balance where answers wait for the file: what is lost would
// never come back.
func TestBalanceExact(t *testing.T) {
	t.Parallel()
	for _, mode := range []disk.Mode{disk.Ahead, disk.Always} {
		r, l := setup(t, mode), store.Balance("credits")
		s := r.open()
		if _, err := r.credit(s, 1000, "inv-1"); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			r.allow(s, debit(alice, l, 7))
		}
		x := r.crashed()
		xs := x.open()
		if got, err := x.credit(xs, 1000, "inv-1"); err != nil || got.Level != -(1000-140)*1000 {
			t.Errorf("%s: %+v, %v", mode, got, err)
		}
	}
}

// TestCreditFails checks that a credit that could not be written is not spent, and that it counts once when it is
// repeated.
func TestCreditFails(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r, l := setup(t, mode), store.Balance("credits")
			s := r.open()
			var full atomic.Bool
			s.Commits(func(commit func() error) error {
				if full.Load() {
					return &fs.PathError{Op: "write", Err: syscall.ENOSPC}
				}
				return commit()
			})
			if _, err := r.credit(s, 10, "inv-1"); err != nil {
				t.Fatal(err)
			}
			full.Store(true)
			for range 2 {
				if got, err := r.credit(s, 500, "inv-2"); !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("credited %+v, %v", got, err)
				}
			}
			out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(alice, l, 200)}})
			if waits := mode == disk.Ahead || mode == disk.Always; waits && err == nil && out.Allowed {
				t.Error("spent what was not written")
			}
			full.Store(false)
			if got, err := r.credit(s, 500, "inv-2"); err != nil || !got.Before {
				t.Fatalf("repeated: %+v, %v", got, err)
			}
			x := r.crashed()
			xs := x.open()
			if got, err := x.credit(xs, 500, "inv-2"); err != nil || !got.Before || got.Level != -510_000 && got.Level != -310_000 {
				t.Errorf("after a crash: %+v, %v", got, err)
			}
		})
	}
}
