package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

// TestReopenAfterID checks that a clean close keeps an id, in any mode, also if its settle is the only change and has
// found no bucket.
func TestReopenAfterID(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := setup(t, mode)
			r.close(r.open())
			for _, want := range []error{nil, store.ErrSettled} {
				s := r.open()
				if err := r.settle(s, "one", debit(alice, still("rpm", 100), -2)); !errors.Is(err, want) {
					t.Fatalf("got %v, want %v", err, want)
				}
				r.close(s)
			}
		})
	}
}

// TestReopen checks that a clean close loses nothing, in any mode.
func TestReopen(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := setup(t, mode)
			rpm, tpm, over := still("rpm", 100), perSecond("tpm", 1000), still("rpm", 7)
			over.Override = true
			key := store.Key{Namespace: "n", Kind: store.KindEntity, ID: "a\x00b", Sub: "\x00"}
			s := r.open()
			both := debit(alice, rpm, 10)
			both.Charges = append(both.Charges, store.Charge{Limit: tpm, Amount: 1}, store.Charge{Limit: over, Amount: 5000})
			r.allow(s, both)
			r.allow(s, force(bob, rpm, 150))
			for i := range 50 {
				r.allow(s, debit(store.Bucket{Namespace: "n", Entity: fmt.Sprint(i), Resource: "api"}, rpm, int64(i)))
			}
			for _, id := range []string{"one", "two"} {
				if err := r.settle(s, id, debit(alice, rpm, -2)); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.settle(s, "", debit(alice, rpm, -1)); err != nil {
				t.Fatal(err)
			}
			record := store.Record{Key: key, Parent: "p", Value: []byte("v"), Expires: noon.Add(time.Hour)}
			if err := s.Commit(t.Context(), store.Write{Record: record}); err != nil {
				t.Fatal(err)
			}
			before := []store.State{r.state(s, alice), r.state(s, bob)}
			r.close(s)
			if _, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(alice, rpm, 1)}}); !errors.Is(err, store.ErrClosed) {
				t.Fatalf("take after close: %v", err)
			}
			r.close(s) // a second time

			for range 2 {
				s = r.open()
				if after := []store.State{r.state(s, alice), r.state(s, bob)}; !reflect.DeepEqual(before, after) {
					t.Fatalf("reopened\n%+v, was\n%+v", after, before)
				}
				for i := range 50 {
					r.wantLeft(s, store.Bucket{Namespace: "n", Entity: fmt.Sprint(i), Resource: "api"}, rpm, 100-int64(i))
				}
				for _, id := range []string{"one", "two"} {
					if err := r.settle(s, id, debit(alice, rpm, -2)); !errors.Is(err, store.ErrSettled) {
						t.Fatalf("settled again: %v", err)
					}
				}
				got, err := s.Get(t.Context(), key)
				record.Version = 1
				if err != nil || got.Epoch != 1 || !reflect.DeepEqual(got.Records[0], record) {
					t.Fatalf("got %+v, %v; want %+v", got, err, record)
				}
				r.close(s)
			}
			if len(r.retired) != 0 {
				t.Fatalf("retired %v", r.retired)
			}
		})
	}
}

// TestReadOnly checks that a store that is only read does not change its file.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	s := r.open()
	r.allow(s, debit(alice, still("rpm", 100), 10))
	c := r.crashed()
	r.close(s)
	for _, r := range []*rig{r, c} {
		r.cfg.MustExist = true
		before, err := os.ReadFile(r.file())
		if err != nil {
			t.Fatal(err)
		}
		s := r.open()
		if st := r.state(s, alice); st.ID == 0 {
			t.Fatal("nothing there")
		}
		r.close(s)
		if after, err := os.ReadFile(r.file()); err != nil || !bytes.Equal(before, after) {
			t.Fatalf("the file has changed, %v", err)
		}
	}
}

// TestFullAtOpen checks that buckets that have filled up meanwhile hand over their counters and eventually leave the file.
func TestFullAtOpen(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	s := r.open()
	l := perSecond("rps", 10)
	r.allow(s, debit(alice, l, 10))
	r.allow(s, debit(bob, still("rpm", 10), 10))
	r.close(s)
	r.clock.Advance(time.Hour)
	for i := range 3 {
		s = r.open()
		if st := r.state(s, alice); st.ID != 0 {
			t.Fatalf("full bucket loaded: %+v", st)
		}
		if i == 1 {
			r.allow(s, debit(bob, still("rpm", 10), 0))
		}
		r.close(s)
	}
	if len(r.retired) != 2 || r.retired[0].Bucket != alice || r.retired[0].Limits[0].Debited != 10_000 {
		t.Fatalf("retired %+v, want the counters of %v, twice", r.retired, alice)
	}
}

// TestFullMany deletes so many full buckets that it takes several transactions. Buckets in use again must stay.
func TestFullMany(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	r := setup(t, disk.Ahead)
	l := perSecond("rps", 10)
	s := r.open()
	ds := make([]store.Debit, 12_000)
	for i := range ds {
		ds[i] = debit(store.Bucket{Namespace: "n", Entity: fmt.Sprintf("%05d", i), Resource: "api"}, l, 10)
	}
	for some := range slices.Chunk(ds, store.MaxCharges) {
		r.allow(s, some...)
	}
	r.close(s)
	r.clock.Advance(time.Hour)
	s = r.open()
	r.allow(s, ds[0], ds[len(ds)-1])
	x := r.crashed()
	xs := x.open()
	x.wantLeft(xs, ds[0].Bucket, l, 0)
	x.wantLeft(xs, ds[len(ds)-1].Bucket, l, 0)
	if len(x.retired) != 2 {
		t.Fatalf("%d records are still there, want 2", len(x.retired))
	}
}

// TestIDs checks that after an unclean end, a bucket does not show lower counters under an id whose counters had already
// been seen higher.
func TestIDs(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := setup(t, mode)
			l := still("rpm", 1000)
			s := r.open()
			r.allow(s, debit(alice, l, 10))
			r.close(s)
			s = r.open() // from here on the file is not clean
			highest := map[uint64]int64{}
			for range 20 {
				r.allow(s, debit(alice, l, 1))
				st := r.state(s, alice)
				highest[st.ID] = st.Limits[0].Debited
			}
			c := r.crashed()
			s = c.open()
			st := c.state(s, alice)
			if seen := highest[st.ID]; st.Limits[0].Debited < seen {
				t.Fatalf("id %d counts %d, was seen at %d", st.ID, st.Limits[0].Debited, seen)
			}
			if len(c.retired) != 1 || c.retired[0].Limits[0].Debited < 10_000 || highest[c.retired[0].ID] == 0 {
				t.Fatalf("retired %+v", c.retired)
			}
			c.allow(s, debit(alice, l, 1))
			c.close(s)
			s = c.open()
			if again := c.state(s, alice); again.ID != st.ID || again.Limits[0].Debited != 1000 {
				t.Fatalf("%+v after a clean end, had id %d", again, st.ID)
			}
		})
	}
}

// TestClockBack checks that a clock set back an hour between two runs admits nothing more, even from buckets that were
// full and gone.
func TestClockBack(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := perSecond("rps", 10)
	l.Period = time.Minute
	s := r.open()
	r.allow(s, debit(alice, l, 10))
	r.clock.Advance(time.Hour)
	r.allow(s, debit(bob, l, 10))
	r.close(s)
	r.clock.Advance(time.Hour)
	s = r.open() // both are full and are deleted with the next transaction
	r.allow(s, debit(alice, l, 10))
	r.close(s)
	last := r.clock.Now()
	r.clock.Advance(-time.Hour)
	s = r.open()
	if snap, err := s.Peek(t.Context()); err != nil || snap.At.Before(last) {
		t.Fatalf("the time is %v, %v; it was %v", snap.At, err, last)
	}
	if r.take(s, debit(alice, l, 1)) {
		t.Fatal("admitted again an hour ago")
	}
	r.allow(s, debit(bob, l, 10)) // it was full and still is
	if r.take(s, debit(bob, l, 1)) {
		t.Fatal("two bursts")
	}
	r.clock.Advance(time.Hour)
	if r.take(s, debit(bob, l, 1)) {
		t.Fatal("what was taken in the past was not taken now")
	}
	r.clock.Advance(time.Minute)
	r.allow(s, debit(alice, l, 10))
}

// TestClockBackCrash checks that time goes on from the last one in the file if a clock is set back after a crash, even if only a
// mark was written that the store is in use.
func TestClockBackCrash(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		r, l := setup(t, mode), still("rpm", 100)
		s := r.open()
		r.allow(s, debit(alice, l, 1))
		r.close(s)
		s = r.open()
		r.allow(s, debit(alice, l, 1))
		c := r.crashed()
		c.clock.Advance(-time.Hour)
		if snap, err := c.open().Peek(t.Context()); err != nil || snap.At.Before(r.clock.Now()) {
			t.Errorf("%s: the time is %v, %v; it was %v", mode, snap.At, err, r.clock.Now())
		}
	}
}

// TestCloseOnce checks that what is settled with an id, or credited, while the store is being closed is in the file together with
// the id, or not at all.
func TestCloseOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []disk.Mode{disk.Interval, disk.Off} { // in others, the last transaction waits for it
		r, l := setup(t, mode), still("rpm", 100)
		var s *disk.Store
		for i, settle := range []func() error{
			func() error { return r.settle(s, "id", debit(alice, l, 60)) },
			func() error { _, err := r.credit(s, 500, "inv"); return err },
		} {
			closes := false
			r.cfg.Now = func() time.Time { // called before it is applied
				if closes {
					closes = false
					go s.Close()
					<-s.Stopped()
				}
				return r.clock.Now()
			}
			s = r.open()
			r.allow(s, debit(alice, l, 1))
			if _, err := r.credit(s, 10, fmt.Sprint(i)); err != nil { // from then on, the file has the bucket as it is
				t.Fatal(err)
			}
			closes = true
			if err := settle(); !errors.Is(err, store.ErrClosed) {
				t.Fatalf("%s: settled: %v", mode, err)
			}
			r.close(s)
			s = r.open()
			if err := settle(); err != nil && !errors.Is(err, store.ErrSettled) {
				t.Fatal(err)
			}
			r.close(s)
		}
		s = r.open()
		r.wantLeft(s, alice, l, 38)
		if got := r.state(s, alice).Limits[1].Level; got != -520_000 {
			t.Errorf("%s: the balance is %d after credits of 520,000", mode, -got)
		}
	}
}

// TestClockBackGoesOn checks that after the machine's clock was set back an hour between two runs, time goes on from the
// last one: nothing is admitted twice, and buckets refill at once, not in an hour.
func TestClockBackGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, disk.Ahead)
		r.cfg.Now = func() time.Time { return time.Now().Add(time.Hour) }
		l := perSecond("rps", 1)
		l.Burst = 5000
		s := r.open()
		r.allow(s, debit(alice, l, 5))
		r.close(s)
		r.cfg.Now = nil
		s = r.open()
		defer s.Close()
		if r.take(s, debit(alice, l, 1)) {
			t.Fatal("admitted twice")
		}
		time.Sleep(5 * time.Second) // real time: none, the test is in a bubble
		r.allow(s, debit(alice, l, 5))
		if r.take(s, debit(alice, l, 1)) {
			t.Fatal("more than was issued")
		}
	})
}

// TestClockForward checks that a clock set forward between two runs refills limits by as much, and only once: set back
// again, it admits nothing more.
func TestClockForward(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := perSecond("rps", 1)
	l.Burst = 5000 * 1000
	s := r.open()
	r.allow(s, debit(alice, l, 5000))
	r.close(s)
	r.clock.Advance(time.Hour)
	s = r.open()
	r.wantLeft(s, alice, l, 3600)
	r.allow(s, debit(alice, l, 3600))
	r.close(s)
	r.clock.Advance(-time.Hour)
	s = r.open()
	r.wantLeft(s, alice, l, 0)
	r.close(s)
	r.clock.Advance(time.Hour)
	s = r.open()
	r.wantLeft(s, alice, l, 0)
	r.close(s)
}

// TestOff checks that, until the store is closed, mode off writes only that the store is in use.
func TestOff(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Off)
	l := still("rpm", 100)
	s := r.open()
	r.allow(s, debit(alice, l, 1))
	before, _ := os.ReadFile(r.file())
	for range 20 {
		r.allow(s, debit(alice, l, 1))
	}
	if err := s.Forget(t.Context(), bob); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(r.file()); !bytes.Equal(before, after) {
		t.Fatal("written before the end")
	}
	c := r.crashed()
	cs := c.open()
	c.wantLeft(cs, alice, l, 100)
	r.close(s)
	s = r.open()
	r.wantLeft(s, alice, l, 79)
}

// TestForget checks that a forgotten bucket stays forgotten, and that a bucket created in its place does not disappear.
func TestForget(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := setup(t, mode)
			l := still("rpm", 100)
			s := r.open()
			r.allow(s, debit(alice, l, 60))
			r.allow(s, debit(bob, l, 60))
			if err := s.Forget(t.Context(), alice, bob); err != nil {
				t.Fatal(err)
			}
			r.allow(s, debit(bob, l, 30))
			if mode == disk.Ahead || mode == disk.Always {
				c := r.crashed()
				cs := c.open()
				c.wantLeft(cs, alice, l, 100)
				if left := c.left(cs, bob, l); left > 70 || left < 60 {
					t.Fatalf("%d tokens left after the crash", left)
				}
			}
			r.close(s)
			s = r.open()
			r.wantLeft(s, alice, l, 100)
			r.wantLeft(s, bob, l, 70)
		})
	}
}
