package disk_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

// TestInterval checks that changes are written once per interval, and that the store reports their age until then.
func TestInterval(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "weir-data")
	synctest.Test(t, func(t *testing.T) {
		s, err := disk.Open(dir, &disk.Config{Mode: disk.Interval, Interval: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l := still("rpm", 100)
		for i := range 30 {
			b := store.Bucket{Namespace: "n", Entity: fmt.Sprint(i), Resource: "api"}
			if _, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(b, l, 1)}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if st := s.Stats(); st.Lag != 1500*time.Millisecond || st.Records != 0 {
			t.Errorf("%+v before the interval has passed", st)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Lag != 0 || st.Records != 30 || st.Commits != 2 { // and a record that the store is in use
			t.Errorf("%+v after the interval", st)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Commits != 2 {
			t.Errorf("%+v though nothing has changed", st)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestIntervalCrash checks that after a crash, what was admitted since the last write is admitted again, and no more.
func TestIntervalCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, disk.Interval)
		r.cfg.Interval = 2 * time.Second
		l := still("rpm", 100)
		s := r.open()
		r.allow(s, debit(alice, l, 5))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.allow(s, debit(alice, l, 3))
		time.Sleep(time.Second)
		synctest.Wait()
		r.wantLeft(s, alice, l, 92)
		c := r.crashed()
		cs := c.open()
		c.wantLeft(cs, alice, l, 95)
		c.close(cs)
		r.close(s)
	})
}

// TestIntervalFails checks that takes continue while writes fail, that the lag shows it, and that the changes are written
// once they can be.
func TestIntervalFails(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "weir-data")
	synctest.Test(t, func(t *testing.T) {
		s, err := disk.Open(dir, &disk.Config{Mode: disk.Interval})
		if err != nil {
			t.Fatal(err)
		}
		var fail atomic.Bool
		s.Commits(func(commit func() error) error {
			if fail.Load() {
				return full
			}
			return commit()
		})
		l := still("rpm", 100)
		take := func(b store.Bucket) {
			t.Helper()
			if _, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(b, l, 1)}}); err != nil {
				t.Fatal(err)
			}
		}
		take(alice)
		synctest.Wait()
		fail.Store(true)
		for range 5 {
			take(bob)
			take(alice)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if st := s.Stats(); st.Lag != 5*time.Second || st.Err == nil || st.Records != 0 {
			t.Errorf("%+v while nothing can be written", st)
		}
		fail.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Lag != 0 || st.Err != nil || st.Records != 2 {
			t.Errorf("%+v after all was written", st)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestChunks checks that more changes than one transaction holds are written in several, and that a caller is answered
// only once its own transaction is committed.
func TestChunks(t *testing.T) {
	t.Parallel()
	for _, mode := range []disk.Mode{disk.Ahead, disk.Interval, disk.Off} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := setup(t, mode)
			l := still("rpm", 100)
			s := r.open()
			ds := make([]store.Debit, 12_000)
			for i := range ds {
				ds[i] = debit(store.Bucket{Namespace: "n", Entity: fmt.Sprint(i), Resource: "api"}, l, 1)
			}
			var takes sync.WaitGroup
			for some := range slices.Chunk(ds, store.MaxCharges) {
				takes.Go(func() {
					out, err := s.Take(t.Context(), store.Take{Debits: some})
					if err != nil || !out.Allowed {
						t.Errorf("a take of %d: %v, %v", len(some), out.Allowed, err)
					}
				})
			}
			takes.Wait()
			if st := s.Stats(); mode == disk.Ahead && (st.Records != 12_000 || st.Commits < 2 || st.Commits > 4) {
				t.Errorf("%+v", st)
			}
			r.close(s)
			s = r.open()
			for i := range ds {
				if i%97 == 0 {
					r.wantLeft(s, ds[i].Bucket, l, 99)
				}
			}
		})
	}
}
