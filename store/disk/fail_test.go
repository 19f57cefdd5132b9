package disk_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

// failing opens a store whose commits fail, before anything is written, with the error in the returned box.
func (r *rig) failing() (*disk.Store, *atomic.Pointer[error]) {
	r.Helper()
	s, box := r.open(), new(atomic.Pointer[error])
	s.Commits(func(commit func() error) error {
		if err := box.Load(); err != nil {
			return *err
		}
		return commit()
	})
	return s, box
}

var full error = &fs.PathError{Op: "write", Path: "weir.db", Err: syscall.ENOSPC}

func (r *rig) wantFull(err error) {
	r.Helper()
	var e *store.Error
	if !errors.As(err, &e) || e.Op != "commit" || e.Key != r.file() || e.Hint == "" || !errors.Is(err, syscall.ENOSPC) {
		r.Fatalf("error %v, want a *store.Error about the full disk", err)
	}
}

// TestDiskFull checks that what cannot be made durable is neither granted nor spent, and that everything works again once
// there is room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for _, mode := range []disk.Mode{disk.Ahead, disk.Always} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := setup(t, mode)
			l := still("rpm", 100)
			s, box := r.failing()
			r.allow(s, debit(alice, l, 10))
			box.Store(&full)
			for range 3 {
				var wg sync.WaitGroup
				for i := range 20 {
					wg.Go(func() {
						b := alice
						if i%2 == 0 {
							b.Entity = fmt.Sprint(i)
						}
						_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(b, l, 30)}})
						if err != nil {
							r.wantFull(err)
						} else if b != alice { // alice's bucket may have been too contended to be debited
							t.Error("granted, though it is not durable")
						}
					})
				}
				wg.Wait()
				r.wantLeft(s, alice, l, 90)
			}
			r.wantFull(s.Commit(t.Context(), store.Write{Record: store.Record{Key: store.Key{Namespace: "n", Kind: store.KindSystem}}}))
			if got, err := s.Get(t.Context(), store.Key{Namespace: "n", Kind: store.KindSystem}); err != nil || got.Epoch != 0 || got.Records[0].Version != 0 {
				t.Fatalf("got %+v, %v", got, err)
			}
			if s.Stats().Err == nil {
				t.Fatal("the figures say that all is well")
			}
			box.Store(nil)
			r.allow(s, debit(alice, l, 30))
			r.must(s.Commit(t.Context(), store.Write{Record: store.Record{Key: store.Key{Namespace: "n", Kind: store.KindSystem}}}))
			if err := s.Stats().Err; err != nil {
				t.Fatalf("the figures say %v", err)
			}
			r.close(s)
			s = r.open()
			r.wantLeft(s, alice, l, 60)
		})
	}
}

// TestSettleOnceFailed checks that an id whose commit failed stays used, and is written with the next commit.
func TestSettleOnceFailed(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := still("rpm", 100)
	s, box := r.failing()
	r.allow(s, debit(alice, l, 50))
	box.Store(&full)
	r.wantFull(r.settle(s, "id", debit(alice, l, -10)))
	if err := r.settle(s, "id", debit(alice, l, -10)); !errors.Is(err, store.ErrSettled) {
		t.Fatalf("settled again: %v", err)
	}
	r.wantLeft(s, alice, l, 60)
	x := r.crashed()
	r.must(x.settle(x.open(), "id", debit(alice, l, -10))) // the failed commit wrote no id
	box.Store(nil)
	r.allow(s, debit(bob, l, 1))
	x = r.crashed()
	xs := x.open()
	if err := x.settle(xs, "id", debit(alice, l, -10)); !errors.Is(err, store.ErrSettled) {
		t.Fatalf("settled again: %v", err)
	}
	x.wantLeft(xs, alice, l, 60)
}

// TestGrow tests a file that cannot grow any more, through bbolt's own size limit.
func TestGrow(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Always)
	l := still("rpm", 100)
	s := r.open()
	r.allow(s, debit(alice, l, 1))
	s.MaxSize(1 << 17)
	var failed error
	n := 0
	for ; failed == nil && n < 10_000; n++ {
		_, failed = s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(store.Bucket{Namespace: "n", Entity: fmt.Sprint(n), Resource: "api"}, l, 1)}})
	}
	if !errors.Is(failed, berrors.ErrMaxSizeReached) || !errors.As(failed, new(*store.Error)) {
		t.Fatalf("error %v after %d", failed, n)
	}
	s.MaxSize(0)
	for i := range 100 {
		r.allow(s, debit(store.Bucket{Namespace: "n", Entity: fmt.Sprint("more-", i), Resource: "api"}, l, 1))
	}
	x := r.crashed()
	xs := x.open()
	for i := range n - 1 {
		x.wantLeft(xs, store.Bucket{Namespace: "n", Entity: fmt.Sprint(i), Resource: "api"}, l, 99)
	}
	r.close(s)
}

// TestUnsure checks that a file that could not be synced is not written again, because its content is unknown.
func TestUnsure(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := still("rpm", 100)
	s, box := r.failing()
	r.allow(s, debit(alice, l, 50))
	var eio error = syscall.EIO
	box.Store(&eio)
	for range 2 {
		if _, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(bob, l, 1)}}); !errors.Is(err, syscall.EIO) {
			t.Fatalf("error %v", err)
		}
		box.Store(nil)
	}
	if err := s.Close(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("closed with %v", err)
	}
	s = r.open()
	if left := r.left(s, alice, l); left > 50 {
		t.Fatalf("%d left", left)
	}
}

// TestPanic checks that a panic of bbolt over a damaged file does not end the process.
func TestPanic(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	s := r.open()
	s.Commits(func(func() error) error { panic("page 7: multiple references") })
	for range 2 {
		_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(alice, still("rpm", 100), 1)}})
		if !errors.As(err, new(*store.Error)) {
			t.Fatalf("error %v", err)
		}
	}
	if err := s.Close(); err == nil {
		t.Fatal("closed as if all were well")
	}
	r.open()
}

// TestHangs checks that no call waits past its deadline for a disk that does not answer.
func TestHangs(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := still("rpm", 100)
	s, p := r.held()
	r.allow(s, debit(bob, l, 1))
	p.onDuty.Store(true)
	for name, call := range map[string]func(ctx context.Context) error{
		"take": func(ctx context.Context) error {
			_, err := s.Take(ctx, store.Take{Debits: []store.Debit{debit(alice, l, 1)}})
			return err
		},
		"settle": func(ctx context.Context) error {
			_, err := s.Settle(ctx, store.Settle{ID: "id", Expires: noon.Add(time.Hour)})
			return err
		},
		"forget": func(ctx context.Context) error { return s.Forget(ctx, bob) },
		"commit": func(ctx context.Context) error {
			return s.Commit(ctx, store.Write{Record: store.Record{Key: store.Key{Namespace: "n", Kind: store.KindSystem}}})
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v", name, err)
		}
		cancel()
	}
	p.relieve()
	r.close(s)
}
