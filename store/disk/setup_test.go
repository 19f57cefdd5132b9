package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/storetest"
)

// noon is the start time of tests that advance the clock by hand.
var noon = time.Date(2026, time.March, 1, 12, 0, 0, 123_456_789, time.UTC)

var (
	alice = store.Bucket{Namespace: "n", Entity: "alice", Resource: "api"}
	bob   = store.Bucket{Namespace: "n", Entity: "bob", Resource: "api"}
)

// rig is a directory for a store, a clock, and the buckets that its stores have retired.
type rig struct {
	*testing.T

	dir   string
	clock *storetest.Clock
	cfg   disk.Config

	mu      sync.Mutex
	retired []store.State
}

func setup(t *testing.T, mode disk.Mode) *rig {
	t.Helper()
	r := &rig{T: t, dir: filepath.Join(t.TempDir(), "weir-data"), clock: storetest.NewClock(noon)}
	r.cfg = disk.Config{Mode: mode, Now: r.clock.Now, Interval: time.Hour, Retired: func(s store.State) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.retired = append(r.retired, s)
	}}
	return r
}

func (r *rig) file() string { return filepath.Join(r.dir, disk.File) }

// open opens the store. It is closed by the test, or at its end.
func (r *rig) open() *disk.Store {
	r.Helper()
	s, err := disk.Open(r.dir, &r.cfg)
	if err != nil {
		r.Fatal(err)
	}
	s.NoSync()
	r.Cleanup(func() { s.Close() })
	return s
}

func (r *rig) close(s *disk.Store) {
	r.Helper()
	if err := s.Close(); err != nil {
		r.Fatal(err)
	}
}

// crashed returns a rig on a copy of the file in its current state, as a crash would leave it.
func (r *rig) crashed() *rig {
	r.Helper()
	c := setup(r.T, r.cfg.Mode)
	c.clock.Set(r.clock.Now())
	raw, err := os.ReadFile(r.file())
	if err != nil {
		r.Fatal(err)
	}
	c.write(raw)
	return c
}

func (r *rig) write(raw []byte) {
	r.Helper()
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(r.file(), raw, 0o600); err != nil {
		r.Fatal(err)
	}
}

// still returns a limit whose clock practically stands still.
func still(name string, tokens int64) *store.Limit {
	return &store.Limit{Name: name, Amount: 1, Period: 366 * 24 * time.Hour, Burst: tokens * 1000}
}

func perSecond(name string, tokens int64) *store.Limit {
	return &store.Limit{Name: name, Amount: tokens * 1000, Period: time.Second, Burst: tokens * 1000}
}

// quota returns a limit of tokens per window of the calendar, such as month@UTC.
func quota(name string, tokens int64, window string) *store.Limit {
	l := &store.Limit{Name: name, Amount: tokens * 1000, Burst: tokens * 1000}
	if err := l.Window.UnmarshalText([]byte(window)); err != nil {
		panic(err)
	}
	return l
}

func debit(b store.Bucket, l *store.Limit, tokens int64) store.Debit {
	return store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{{Limit: l, Amount: tokens * 1000}}}
}

func force(b store.Bucket, l *store.Limit, tokens int64) store.Debit {
	d := debit(b, l, tokens)
	d.Charges[0].Force = true
	return d
}

func (r *rig) take(s *disk.Store, ds ...store.Debit) bool {
	r.Helper()
	out, err := s.Take(r.Context(), store.Take{Debits: ds})
	if err != nil {
		r.Fatalf("take: %v", err)
	}
	return out.Allowed
}

func (r *rig) allow(s *disk.Store, ds ...store.Debit) {
	r.Helper()
	if !r.take(s, ds...) {
		r.Fatal("refused, want allowed")
	}
}

func (r *rig) settle(s *disk.Store, id string, ds ...store.Debit) error {
	r.Helper()
	st := store.Settle{Debits: ds, ID: id}
	if id != "" {
		st.Expires = noon.Add(time.Hour)
	}
	_, err := s.Settle(r.Context(), st)
	return err
}

func (r *rig) state(s *disk.Store, b store.Bucket) store.State {
	r.Helper()
	snap, err := s.Peek(r.Context(), b)
	if err != nil {
		r.Fatal(err)
	}
	return snap.States[0]
}

// left returns how many tokens of a limit can be taken, a whole number unless the clock runs.
func (r *rig) left(s *disk.Store, b store.Bucket, l *store.Limit) int64 {
	r.Helper()
	snap, err := s.Peek(r.Context(), b)
	if err != nil {
		r.Fatal(err)
	}
	for _, st := range snap.States[0].Limits {
		if st.Limit.Name == l.Name {
			return available(st.Limit, st.Level, snap.At) / 1000
		}
	}
	return l.Burst / 1000
}

func (r *rig) wantLeft(s *disk.Store, b store.Bucket, l *store.Limit, tokens int64) {
	r.Helper()
	if got := r.left(s, b, l); got != tokens {
		r.Fatalf("%d tokens left, want %d", got, tokens)
	}
}

// fails opens the store and returns its error, which must be a *store.Error that names the file and wraps target.
func (r *rig) fails(target error) *store.Error {
	r.Helper()
	s, err := disk.Open(r.dir, &r.cfg)
	if err == nil {
		s.Close()
		r.Fatalf("opened, want %v", target)
	}
	var e *store.Error
	if !errors.As(err, &e) || e.Op != "open" || e.Key != r.file() || e.Hint == "" || !errors.Is(err, target) {
		r.Fatalf("error %v, want a *store.Error about %s with a hint, around %v", err, r.file(), target)
	}
	return e
}

// begin starts f and returns a channel for its result.
func begin[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

func available(l *store.Limit, level int64, now time.Time) int64 {
	p := l.Params()
	return p.Available(level, p.Clock(clock.Nanos(now)))
}
