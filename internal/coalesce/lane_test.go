package coalesce_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir/internal/coalesce"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rider struct {
	coalesce.Ticket

	name string
}

// driver carries up to most riders per write. A write takes a second.
type driver struct {
	lane *coalesce.Lane[*rider]
	most int
	hold time.Duration // how long to wait for more riders
	wait bool          // wait without limit
	back bool          // the next write fails, and its riders keep waiting
	rest time.Duration // pause after each write

	boarding []*rider
	writes   [][]string
	gone     []string // riders aboard writes that their callers left
	boards   int
	under    int
	overlaps int
}

// newFleet returns a fleet that is closed at the end of the test.
func newFleet(t *testing.T) *coalesce.Fleet {
	fleet := new(coalesce.Fleet)
	t.Cleanup(fleet.Close)
	return fleet
}

func newDriver(fleet *coalesce.Fleet) *driver {
	d := &driver{most: 100}
	d.lane = coalesce.New(fleet, d)
	return d
}

func (d *driver) Board(waiting []*rider) ([]*rider, bool, time.Duration) {
	d.boards++
	switch n := min(d.most, len(waiting)); {
	case n == 0 || d.wait:
		return waiting, false, 0
	case d.hold > 0:
		hold := d.hold
		d.hold = 0
		return waiting, false, hold
	default:
		d.boarding = slices.Clone(waiting[:n])
		for _, r := range d.boarding {
			d.lane.Board(r)
		}
		return slices.Clone(waiting[n:]), true, 0
	}
}

func (d *driver) Carry() (rest time.Duration) {
	d.lane.Lock()
	if d.under++; d.under > 1 {
		d.overlaps++
	}
	d.lane.Unlock()
	time.Sleep(time.Second) // real time: none, all who call it are in a bubble
	d.lane.Lock()
	defer d.lane.Unlock()
	d.under--
	var names []string
	for _, r := range d.boarding {
		names = append(names, r.name)
	}
	d.writes = append(d.writes, names)
	if d.back {
		d.back = false
		d.lane.Back(d.boarding)
		return d.rest
	}
	for _, r := range d.boarding {
		if r.Abandoned() {
			d.gone = append(d.gone, r.name)
		}
		d.lane.Answer(r)
	}
	return d.rest
}

func (d *driver) add(names ...string) (rs []*rider) {
	d.lane.Lock()
	defer d.lane.Unlock()
	for _, n := range names {
		r := &rider{name: n}
		d.lane.Add(r)
		rs = append(rs, r)
	}
	return rs
}

func (d *driver) addFirst(name string) *rider {
	d.lane.Lock()
	defer d.lane.Unlock()
	r := &rider{name: name}
	d.lane.AddFirst(r)
	return r
}

func (d *driver) await(t *testing.T, rs ...*rider) {
	t.Helper()
	for _, r := range rs {
		if err := d.lane.Wait(t.Context(), r); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}

func (d *driver) want(t *testing.T, writes ...string) {
	t.Helper()
	var got []string
	d.lane.Lock()
	for _, w := range d.writes {
		var s strings.Builder
		for _, n := range w {
			s.WriteString(n)
		}
		got = append(got, s.String())
	}
	d.lane.Unlock()
	if !slices.Equal(got, writes) {
		t.Errorf("writes %q, want %q", got, writes)
	}
}

// TestShare checks that riders that arrive while a write is under way share the next, in the order of their arrival.
func TestShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		begun := time.Now()
		a := d.add("a")
		synctest.Wait()
		rest := d.add("b", "c", "d")
		d.most = 2
		rest = append(rest, d.add("e")...)
		d.await(t, a[0])
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the first took %v", took)
		}
		d.await(t, rest...)
		d.want(t, "a", "bc", "de")
		if took := time.Since(begun); took != 3*time.Second || d.overlaps > 0 {
			t.Errorf("took %v, %d overlaps", took, d.overlaps)
		}
	})
}

// TestLeave checks that a rider that gives up while it waits is not carried, and that one that gives up aboard is carried
// and its driver told.
func TestLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		a := d.add("a")[0]
		synctest.Wait()
		b := d.add("b")[0]
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var group sync.WaitGroup
		for _, r := range []*rider{a, b} {
			group.Go(func() {
				if err := d.lane.Wait(short, r); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", r.name, err)
				}
			})
		}
		group.Wait()
		d.await(t, d.add("c")...)
		d.want(t, "a", "c")
		if !slices.Equal(d.gone, []string{"a"}) {
			t.Errorf("gone: %q", d.gone)
		}
		// An answer counts, however late it is asked for.
		if err := d.lane.Wait(short, a); err != nil {
			t.Errorf("an answered rider: %v", err)
		}
	})
}

// TestBack checks that riders that are put back go ahead of those that arrived meanwhile, and may leave again.
func TestBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		d.most, d.back = 2, true
		first := d.add("a", "b")
		synctest.Wait()
		rest := d.add("c")
		time.Sleep(3 * time.Second / 2) // the retry of a and b is under way
		d.await(t, append(first, rest...)...)
		d.want(t, "ab", "ab", "c")
	})
}

func TestBackLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		d.most, d.back = 1, true
		a := d.add("a")[0]
		time.Sleep(time.Second / 2)
		x := d.addFirst("x")
		d.lane.Lock()
		d.wait = true // after this write
		d.lane.Unlock()
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.lane.Wait(ctx, a); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		d.lane.Lock()
		d.wait = false
		d.lane.Unlock()
		d.await(t, append(d.add("b"), x)...)
		d.want(t, "a", "x", "b")
	})
}

// TestFirst checks that a rider added by AddFirst goes first, that riders removed by Drop are not carried, and that an
// idle lane reports itself idle.
func TestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		d.most = 1
		rs := d.add("a")
		synctest.Wait()
		rs = append(rs, d.add("b", "c")...)
		rs = append(rs, d.addFirst("first"))
		d.lane.Lock()
		if d.lane.Idle() || len(d.lane.Waiting()) != 3 {
			t.Errorf("idle %t, %d wait", d.lane.Idle(), len(d.lane.Waiting()))
		}
		d.lane.Drop(func(r *rider) bool { return r.name == "b" })
		d.lane.Unlock()
		d.await(t, rs[0], rs[2], rs[3])
		synctest.Wait()
		d.want(t, "a", "first", "c")
		d.lane.Lock()
		defer d.lane.Unlock()
		if !d.lane.Idle() {
			t.Error("not idle in the end")
		}
	})
}

// TestPause checks that a driver that delays a write is asked again after that time, or when a rider joins.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		begun := time.Now()
		d.hold = 10 * time.Second
		a := d.add("a")
		d.await(t, a...)
		if took := time.Since(begun); took != 11*time.Second {
			t.Errorf("took %v", took)
		}
		synctest.Wait()
		begun, d.hold = time.Now(), 10*time.Second
		b := d.add("b")
		time.Sleep(time.Second)
		d.await(t, append(b, d.add("c")...)...)
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
		synctest.Wait()
		boards := d.boards
		time.Sleep(time.Minute) // a pause that was ended does not end again
		synctest.Wait()
		if d.boards != boards {
			t.Errorf("asked %d times more", d.boards-boards)
		}
		d.want(t, "a", "bc")
	})
}

// TestHammer checks that under load, no rider is lost, no writes overlap, and no lane stands still while a rider waits.
func TestHammer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fleet coalesce.Fleet
		d := newDriver(&fleet)
		d.most = 7
		var group sync.WaitGroup
		for i := range 40 {
			group.Go(func() {
				for n := range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(i*n)%5)*time.Second)
					err := d.lane.Wait(ctx, d.add("x")[0])
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		group.Wait()
		fleet.Close()
		d.lane.Lock()
		defer d.lane.Unlock()
		if !d.lane.Idle() || d.overlaps > 0 || len(d.writes) == 0 || len(d.gone) == 0 {
			t.Errorf("idle %t, %d overlaps, %d writes, %d gone", d.lane.Idle(), d.overlaps, len(d.writes), len(d.gone))
		}
	})
}
