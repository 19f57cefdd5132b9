package coalesce_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/coalesce"
)

// patient has riders wait for as long as the fleet lets it.
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

// TestFlush: a flush ends pauses and waits for what they held back, and afterwards riders may be kept waiting again.
func TestFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fleet coalesce.Fleet
		fleet.Flush() // of nothing
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

// TestFlushAsPauseEnds: a lane whose pause ends in the moment of a flush is waited for.
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

// TestClosed: after the end nobody is kept waiting for company, and a second end is as good as the first.
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
