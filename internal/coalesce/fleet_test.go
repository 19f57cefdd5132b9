package coalesce_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/coalesce"
)

// patient is a driver that makes riders wait for as long as the fleet allows.
type patient struct {
	*driver

	fleet *coalesce.Fleet
}

func (p *patient) Board(waiting []*rider) ([]*rider, bool, time.Duration) {
	if len(waiting) > 0 && !p.fleet.Urgent() {
		return waiting, false, time.Hour
	}
	return p.driver.Board(waiting)
}

func newPatient(fleet *coalesce.Fleet) *patient {
	p := &patient{&driver{most: 1}, fleet}
	p.lane = coalesce.New(fleet, p)
	return p
}

// TestFlush checks that a flush ends pauses and waits for what they held back, and that riders may be delayed again
// afterwards.
func TestFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fleet coalesce.Fleet
		fleet.Flush() // with nothing to flush
		p, q := newPatient(&fleet), newDriver(&fleet)
		p.add("a", "b")
		synctest.Wait()
		q.add("c")
		begun := time.Now()
		fleet.Flush()
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
		p.want(t, "a", "b")
		q.want(t, "c")
		last := p.add("d")
		time.Sleep(time.Minute)
		p.want(t, "a", "b")
		fleet.Close()
		p.await(t, last...)
		p.want(t, "a", "b", "d")
	})
}

// TestFlushAsPauseEnds checks that a flush waits for a lane whose pause ends at that moment.
func TestFlushAsPauseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fleet coalesce.Fleet
		defer fleet.Close()
		for range 10_000 {
			p := newPatient(&fleet)
			riders := p.add("a")
			synctest.Wait()
			time.Sleep(time.Hour)
			fleet.Flush()
			p.lane.Lock()
			idle := p.lane.Idle()
			p.lane.Unlock()
			if !idle {
				t.Fatal("the flush has ended, and the lane goes on")
			}
			p.await(t, riders...)
		}
	})
}

// TestClosed checks that no rider is delayed after Close, and that a second Close does no harm.
func TestClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fleet coalesce.Fleet
		p := newPatient(&fleet)
		p.add("a")
		synctest.Wait()
		fleet.Close()
		p.want(t, "a")
		begun := time.Now()
		p.await(t, p.add("b")...)
		if took := time.Since(begun); took != time.Second || !fleet.Urgent() {
			t.Errorf("took %v", took)
		}
		fleet.Close()
		p.want(t, "a", "b")
	})
}
