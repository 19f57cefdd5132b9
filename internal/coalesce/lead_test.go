package coalesce_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/coalesce"
)

// TestLead checks that a caller that leads makes its own write, and none for riders that arrived meanwhile.
func TestLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		begun := time.Now()
		rest := make(chan []*rider, 1)
		go func() {
			time.Sleep(time.Second / 2)
			rest <- d.add("b", "c")
		}()
		if err := d.lead(t.Context(), "a"); err != nil || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		d.await(t, <-rest...)
		synctest.Wait()
		if err := d.lead(t.Context(), "d"); err != nil || time.Since(begun) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		d.want(t, "a", "bc", "d")
		if want := []bool{true, false, true}; !slices.Equal(d.led, want) || d.overlaps > 0 {
			t.Errorf("led %v, want %v; %d overlaps", d.led, want, d.overlaps)
		}
	})
}

// TestLeadBehind checks that a rider that would lead on a moving lane rides like any other.
func TestLeadBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		d.add("a")
		synctest.Wait()
		if err := d.lead(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		d.want(t, "a", "b")
		if slices.Contains(d.led, true) {
			t.Errorf("led %v", d.led)
		}
	})
}

// TestLeadLeaves checks that a caller whose time is up is told at once. Its write is completed all the same, and the next
// one waits for it.
func TestLeadLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		begun := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		if err := d.lead(short, "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second/4 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if err := d.lead(t.Context(), "b"); err != nil || time.Since(begun) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		d.want(t, "a", "b")
		if !slices.Equal(d.gone, []string{"a"}) || d.overlaps > 0 {
			t.Errorf("gone: %q; %d overlaps", d.gone, d.overlaps)
		}
	})
}

// TestLeadLate checks that a rider whose time is up before it leads is not carried, and that the lane does not wait for
// it.
func TestLeadLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		d.wait = true // otherwise it may or may not be carried
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.lead(over, "a"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		d.lane.Lock()
		if !d.lane.Idle() {
			t.Error("not idle")
		}
		d.wait = false
		d.lane.Unlock()
		d.await(t, d.add("b")...)
		d.want(t, "b")
	})
}

// TestLeadHeld checks that a write that cannot be left is made by another goroutine from the start.
func TestLeadHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		d.held = true
		short, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		if err := d.lead(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := d.lead(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		d.want(t, "a", "b")
		if slices.Contains(d.led, true) || d.overlaps > 0 {
			t.Errorf("led %v, %d overlaps", d.led, d.overlaps)
		}
	})
}

// TestLeadBack checks that a rider that is put back waits for another goroutine's write, and leaves when its time is up,
// even while the lane rests. A rider that was answered does not wait for the rest.
func TestLeadBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		d.back, d.rest = true, 10*time.Second
		begun := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := d.lead(short, "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		d.await(t, d.add("b")...)
		if took := time.Since(begun); took != 12*time.Second {
			t.Errorf("b took %v", took)
		}
		time.Sleep(10 * time.Second)
		begun = time.Now()
		if err := d.lead(t.Context(), "c"); err != nil || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		d.want(t, "a", "b", "c")
	})
}

// TestLeadWaits checks that a rider whose write is delayed makes no write itself, and is answered after the delay.
func TestLeadWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(newFleet(t))
		d.hold = 10 * time.Second
		begun := time.Now()
		if err := d.lead(t.Context(), "a"); err != nil || time.Since(begun) != 11*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		d.want(t, "a")
	})
}

// crashEnv makes the test's binary a process whose driver panics.
const crashEnv = "WEIR_TEST_COALESCE_CRASH"

// panics is a driver that panics on whichever goroutine makes its write.
type panics struct{}

func (panics) Board(waiting []*rider) ([]*rider, bool, time.Duration) {
	return nil, len(waiting) > 0, 0
}

func (panics) Carry(context.Context) (done bool, rest time.Duration) { panic("what is wrong") }

// TestLeadPanics checks that a panic while a caller makes a write ends the process, even if the caller would recover from it.
func TestLeadPanics(t *testing.T) {
	t.Parallel()
	if os.Getenv(crashEnv) != "" {
		defer func() { _ = recover() }()
		lane, r := coalesce.New[*rider](new(coalesce.Fleet), panics{}), new(rider)
		lane.Lock()
		lane.Lead(r)
		lane.Unlock()
		_ = lane.Wait(t.Context(), r)
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLeadPanics$")
	child.Env = append(os.Environ(), crashEnv+"=1")
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "what is wrong") || !strings.Contains(string(out), "panics.Carry") {
		t.Errorf("%v: %s", err, out)
	}
}
