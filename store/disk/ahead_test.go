package disk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

// porter, while on duty, holds up the commits of a store until the test decides the outcome of each.
type porter struct {
	onDuty  atomic.Bool
	arrived chan struct{}
	verdict chan func(commit func() error) error
	relief  chan struct{}
	relieve func() // lets all commits pass from now on
}

func (r *rig) held() (*disk.Store, *porter) {
	r.Helper()
	p := &porter{arrived: make(chan struct{}), verdict: make(chan func(func() error) error), relief: make(chan struct{})}
	p.relieve = sync.OnceFunc(func() { close(p.relief) })
	s := r.open()
	r.Cleanup(p.relieve)
	s.Commits(func(commit func() error) error {
		if !p.onDuty.Load() {
			return commit()
		}
		select {
		case p.arrived <- struct{}{}:
		case <-p.relief:
			return commit()
		}
		select {
		case f := <-p.verdict:
			return f(commit)
		case <-p.relief:
			return commit()
		}
	})
	return s, p
}

// doubt makes the commit under way report err although everything was written.
func (p *porter) doubt(err error) {
	p.verdict <- func(commit func() error) error {
		if failed := commit(); failed != nil {
			return failed
		}
		return err
	}
}

// taking starts a take. When it is answered, it must have been allowed.
func (r *rig) taking(s *disk.Store, ds ...store.Debit) <-chan error {
	return begin(func() error {
		out, err := s.Take(r.Context(), store.Take{Debits: ds})
		if err == nil && !out.Allowed {
			err = errors.New("refused")
		}
		return err
	})
}

// waits checks that a call has not been answered although the bucket already shows the given number of tokens.
func (r *rig) waits(c <-chan error, s *disk.Store, b store.Bucket, l *store.Limit, left int64) {
	r.Helper()
	for r.left(s, b, l) != left {
		runtime.Gosched()
	}
	select {
	case err := <-c:
		r.Fatalf("answered before it was durable: %v", err)
	default:
	}
}

// busy makes alice's bucket one that reserves a tenth of its burst.
func (r *rig) busy(s *disk.Store, l *store.Limit) {
	r.Helper()
	for range 3 {
		r.clock.Advance(time.Millisecond)
		r.allow(s, debit(alice, l, 10))
	}
}

// TestAhead checks that a debit within the reservation is answered from memory, and one past it waits for a commit.
func TestAhead(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := still("rpm", 1000)
	s, p := r.held()
	r.busy(s, l)
	p.onDuty.Store(true)
	for range 80 {
		r.allow(s, debit(alice, l, 1))
	}
	past := r.taking(s, debit(alice, l, 90))
	<-p.arrived
	r.waits(past, s, alice, l, 1000-30-80-90)
	small := r.taking(s, debit(alice, l, 1)) // the level is already past what is durable
	r.waits(small, s, alice, l, 1000-30-80-91)
	x := r.crashed()
	if left := x.left(x.open(), alice, l); left > 1000-30-80 {
		t.Fatalf("%d left in the file", left)
	}
	p.relieve()
	r.must(<-past)
	r.must(<-small)
	x = r.crashed()
	if left := x.left(x.open(), alice, l); left > 1000-30-80-91 {
		t.Fatalf("%d left in the file", left)
	}
}

// TestAlways checks that every debit waits for a commit, even below what is durable.
func TestAlways(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Always)
	l := still("rpm", 1000)
	s, p := r.held()
	r.allow(s, debit(alice, l, 100))
	r.must(r.settle(s, "", debit(alice, l, -50)))
	p.onDuty.Store(true)
	c := r.taking(s, debit(alice, l, 1))
	<-p.arrived
	r.waits(c, s, alice, l, 949)
	x := r.crashed()
	x.wantLeft(x.open(), alice, l, 900) // neither the return nor the debit has been written yet
	p.relieve()
	r.must(<-c)
	x = r.crashed()
	x.wantLeft(x.open(), alice, l, 949)
}

// TestChangedLimit checks that the first debit under changed limits waits for the record that holds them.
func TestChangedLimit(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *store.Debit){
		"raised":  func(d *store.Debit) { d.Charges[0].Limit = still("rpm", 2000) },
		"lowered": func(d *store.Debit) { d.Charges[0].Limit = still("rpm", 500) },
		"added":   func(d *store.Debit) { d.Charges = append(d.Charges, store.Charge{Limit: still("tpm", 5), Amount: 1}) },
		"override": func(d *store.Debit) {
			d.Charges[0].Limit = &store.Limit{Name: "rpm", Amount: 1, Period: time.Hour, Burst: 9000, Override: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, disk.Ahead)
			l := still("rpm", 1000)
			s, p := r.held()
			r.busy(s, l)
			was := r.state(s, alice).Limits
			p.onDuty.Store(true)
			d := debit(alice, l, 1)
			d.Epoch = 2
			change(&d)
			c := r.taking(s, d)
			<-p.arrived
			select {
			case err := <-c:
				t.Fatalf("answered before it was durable: %v", err)
			default:
			}
			x := r.crashed()
			if got := x.state(x.open(), alice).Limits; len(got) != len(was) || *got[0].Limit != *was[0].Limit {
				t.Fatalf("durable %v, want %v", got, was)
			}
			p.relieve()
			r.must(<-c)
			x = r.crashed()
			if got, want := x.state(x.open(), alice).Limits, r.state(s, alice).Limits; len(got) != len(want) || *got[0].Limit != *want[0].Limit {
				t.Fatalf("durable %v, want %v", got, want)
			}
		})
	}
}

// TestForcePastReservation checks that a forced debit also waits.
func TestForcePastReservation(t *testing.T) {
	t.Parallel()
	for name, force := range map[string]func(r *rig, s *disk.Store, l *store.Limit) error{
		"take": func(r *rig, s *disk.Store, l *store.Limit) error {
			_, err := s.Take(r.Context(), store.Take{Debits: []store.Debit{force(alice, l, 50)}})
			return err
		},
		"settle": func(r *rig, s *disk.Store, l *store.Limit) error { return r.settle(s, "", debit(alice, l, 50)) },
		"once":   func(r *rig, s *disk.Store, l *store.Limit) error { return r.settle(s, "id", debit(alice, l, 50)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, disk.Ahead)
			l := still("rpm", 10)
			s, p := r.held()
			r.allow(s, debit(alice, l, 10))
			p.onDuty.Store(true)
			c := begin(func() error { return force(r, s, l) })
			<-p.arrived
			r.waits(c, s, alice, l, -50)
			p.relieve()
			r.must(<-c)
			x := r.crashed()
			x.wantLeft(x.open(), alice, l, -50) // nothing is reserved in debt
		})
	}
}

// TestReturnWithID checks that tokens returned by a settle with an id are not spent before the id is durable: after a
// crash the settle could return them again.
func TestReturnWithID(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := still("rpm", 10)
	s, p := r.held()
	r.allow(s, debit(alice, l, 10))
	p.onDuty.Store(true)
	settled := begin(func() error { return r.settle(s, "id", debit(alice, l, -10)) })
	<-p.arrived
	r.waits(settled, s, alice, l, 10)
	taken := r.taking(s, debit(alice, l, 10))
	r.waits(taken, s, alice, l, 0)
	x := r.crashed()
	xs := x.open()
	x.wantLeft(xs, alice, l, 0)
	r.must(x.settle(xs, "id", debit(alice, l, -10)))
	x.allow(xs, debit(alice, l, 10))
	p.relieve()
	r.must(<-settled)
	r.must(<-taken)
	x = r.crashed()
	xs = x.open()
	if err := x.settle(xs, "id", debit(alice, l, -10)); !errors.Is(err, store.ErrSettled) {
		t.Fatalf("settled again: %v", err)
	}
	x.wantLeft(xs, alice, l, 0)
}

// TestReturnWithIDQueued checks the same while the id is still waiting for a commit.
func TestReturnWithIDQueued(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := still("rpm", 10)
	s, p := r.held()
	r.allow(s, debit(alice, l, 10))
	p.onDuty.Store(true)
	other := r.taking(s, debit(bob, l, 1))
	<-p.arrived
	settled := begin(func() error { return r.settle(s, "id", debit(alice, l, -10)) })
	r.waits(settled, s, alice, l, 10)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Take(ctx, store.Take{Debits: []store.Debit{debit(alice, l, 10)}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("answered before the id was durable: %v", err)
	}
	p.relieve()
	r.must(<-other)
	r.must(<-settled)
}

// TestOnceTogether checks that a settle's id and its effect become durable together, whenever a crash comes.
func TestOnceTogether(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Always)
	l := still("rpm", 1000)
	s := r.open()
	r.allow(s, debit(alice, l, 0))
	var files [][]byte
	s.Commits(func(commit func() error) error {
		err := commit()
		raw, readErr := os.ReadFile(r.file())
		files = append(files, raw)
		return errors.Join(err, readErr)
	})
	const settlers, settles = 8, 25
	var wg sync.WaitGroup
	for g := range settlers {
		wg.Go(func() {
			for i := range settles {
				if err := r.settle(s, fmt.Sprint(g, "-", i), debit(alice, l, 1), debit(bob, l, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r.close(s)
	for i := 0; i < len(files); i += 1 + len(files)/20 {
		x := setup(t, disk.Always)
		x.write(files[i])
		xs := x.open()
		done := int64(0)
		left, also := x.left(xs, alice, l), x.left(xs, bob, l)
		for g := range settlers {
			for i := range settles {
				if errors.Is(x.settle(xs, fmt.Sprint(g, "-", i)), store.ErrSettled) {
					done++
				}
			}
		}
		if 1000-left != done || also != left {
			t.Fatalf("after commit %d the file has %d ids, of which it has %d and %d done", i, done, 1000-left, 1000-also)
		}
	}
}

// TestDoubt checks that while a commit is under way, and after one whose outcome is unknown, answers from memory are
// bounded by the smaller of the old reservation and the new one.
func TestDoubt(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := still("rpm", 1000)
	s, p := r.held()
	r.busy(s, l)
	r.clock.Advance(10 * time.Second)
	p.onDuty.Store(true)
	// The record now reserves next to nothing because the bucket was idle.
	settled := begin(func() error { return r.settle(s, "id", debit(alice, l, -20)) })
	<-p.arrived
	r.waits(settled, s, alice, l, 990)
	within := r.taking(s, debit(alice, l, 40)) // within the old reservation
	r.waits(within, s, alice, l, 950)
	p.doubt(syscall.EIO)
	if err := <-settled; !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v", err)
	}
	if err := <-within; !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v", err)
	}
	x := r.crashed()
	if left := x.left(x.open(), alice, l); left < 980 {
		t.Fatalf("%d left in the file: the test is not about what it should be", left)
	}
	if err := <-r.taking(s, debit(alice, l, 40)); !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v", err)
	}
	r.wantLeft(s, alice, l, 990)
	p.relieve()
	if err := s.Close(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("closed with %v", err)
	}
}

// TestGiveUp checks that a caller who gives up waiting gets nothing, and that what was taken is returned.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := still("rpm", 100)
	s, p := r.held()
	r.allow(s, debit(bob, l, 10)) // so that one of the two debits is covered
	r.allow(s, debit(alice, l, 10))
	p.onDuty.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	c := begin(func() error {
		_, err := s.Take(ctx, store.Take{Debits: []store.Debit{debit(alice, l, 60), debit(bob, l, 1)}})
		return err
	})
	<-p.arrived
	r.waits(c, s, alice, l, 30)
	cancel()
	if err := <-c; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	r.wantLeft(s, alice, l, 90)
	r.wantLeft(s, bob, l, 90)
	if st := r.state(s, alice); st.Limits[0].Debited != 70_000 || st.Limits[0].Returned != 60_000 {
		t.Fatalf("counters %+v", st.Limits[0])
	}
	p.relieve()
	r.close(s)
	s = r.open()
	r.wantLeft(s, alice, l, 90)
	r.wantLeft(s, bob, l, 90)
}

// TestUndoKeepsWhatTheClockIssued checks an undo in a bucket that gained tokens in the meantime. Without the take, the
// bucket would have been full and gained nothing.
func TestUndoKeepsWhatTheClockIssued(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := perSecond("rps", 10)
	s, p := r.held()
	r.allow(s, debit(bob, l, 1))
	p.onDuty.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	c := begin(func() error {
		_, err := s.Take(ctx, store.Take{Debits: []store.Debit{debit(alice, l, 10)}})
		return err
	})
	<-p.arrived
	r.waits(c, s, alice, l, 0)
	r.clock.Advance(500 * time.Millisecond)
	mine := r.taking(s, debit(alice, l, 5))
	r.waits(mine, s, alice, l, 0)
	cancel()
	if err := <-c; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	r.wantLeft(s, alice, l, 5) // the burst of 10 less 5, not 10
	p.relieve()
	r.must(<-mine)
}

// TestCrashCosts checks that a crash never leaves a level below the true one, more than a stretch above it, or past the
// burst.
func TestCrashCosts(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	limits := []*store.Limit{
		perSecond("rps", 100), still("rpm", 50),
		{Name: "slow", Amount: 10_000, Period: time.Minute, Burst: 400_000},
		quota("usd", 200, "hour@UTC"),
	}
	r.clock.Set(noon.Truncate(time.Hour).Add(-10 * time.Second)) // the hour ends meanwhile
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		s := r.open()
		l := rapid.SampledFrom(limits).Draw(rt, "limit")
		b := store.Bucket{Namespace: "n", Entity: fmt.Sprint("entity-", n), Resource: "api"}
		for range rapid.IntRange(1, 12).Draw(rt, "takes") {
			r.clock.Advance(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(rt, "pause")) >> rapid.IntRange(0, 12).Draw(rt, "shorter"))
			d := debit(b, l, rapid.Int64Range(0, 30).Draw(rt, "tokens"))
			d.Charges[0].Force = rapid.IntRange(0, 9).Draw(rt, "force") == 0
			r.take(s, d)
		}
		is := r.state(s, b)
		x := r.crashed()
		xs := x.open()
		durable := x.state(xs, b)
		r.close(s)
		x.close(xs)
		p := l.Params()
		reading := p.Clock(clock.Nanos(r.clock.Now()))
		if len(is.Limits) == 0 || is.Limits[0].Level <= reading {
			return // full: nothing to lose
		}
		level := is.Limits[0].Level
		longest := l.Burst / 10
		if p.Kind() == clock.Rate {
			longest = max(longest, p.Clock(clock.Nanos(r.clock.Now())+int64(time.Second))-reading+1)
		}
		if len(durable.Limits) == 0 || durable.Limits[0].Level < level {
			rt.Fatalf("durable %+v, true level %d", durable, level)
		}
		if over := durable.Limits[0].Level; over-level > longest || over > max(level, reading+l.Burst) {
			rt.Fatalf("durable level %d, true %d, clock %d, burst %d", over, level, reading, l.Burst)
		}
	})
}

func TestReserve(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := clock.Params{
			Amount: rapid.Int64Range(1, 1e9).Draw(t, "amount"),
			Period: rapid.Int64Range(1e9, int64(clock.MaxPeriod)).Draw(t, "period"),
			Burst:  rapid.Int64Range(1, clock.MaxBurst).Draw(t, "burst"),
		}
		now := rapid.Int64Range(-1e18, 2e18).Draw(t, "now")
		reading := p.Clock(now)
		level := reading + rapid.Int64Range(-1e15, clock.MaxBurst).Draw(t, "outstanding")
		base := level - rapid.Int64Range(-1e12, 1e15).Draw(t, "moved")
		since := rapid.Int64Range(0, 1e11).Draw(t, "since")
		got := disk.Reserve(p, level, base, now, since, rapid.Bool().Draw(t, "known"))
		longest := max(p.Burst/10, p.Clock(now+1e9)-reading)
		if got < level || got > max(level, reading+p.Burst) || got-level > longest {
			t.Fatalf("reserved %d, level %d, clock %d, at most %d", got, level, reading, longest)
		}
	})
}
