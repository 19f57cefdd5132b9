package governor_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/internal/fleet"
)

// Half of the workers, including the leader, cannot reach the coordinator for a minute; the others can. The fallback rate
// of the cut-off workers stays reserved for them.
func TestHalfOfAFleetIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 400)
		views := w.join(10)
		w.run(60 * sec)
		for _, v := range views[:5] {
			v.cut.Store(true)
		}
		w.run(60 * sec)
		for _, v := range views[:5] {
			v.cut.Store(false)
		}
		w.run(60 * sec)
		w.end()
		t.Logf("half cut off for 1 min: peak second %.3f, meanwhile %.3f, last 10 s of it %.3f", w.peak(60*sec, sec), w.average(60*sec, 120*sec), w.average(110*sec, 120*sec))
		w.holds(0, 145*sec, 180*sec)
		if a := w.average(110*sec, 120*sec); a < 0.9 {
			t.Errorf("%.3f was used by those who were left", a)
		}
	})
}

// Workers come and go, half of them without closing: the limit holds, and the shares of dead workers are reused.
func TestFleetChurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 500)
		w.join(20)
		w.run(30 * sec)
		for i, g := range w.govs[:10] {
			if i%2 == 0 {
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		w.run(10 * sec)
		w.join(10)
		w.run(50 * sec)
		w.end()
		w.holds(0, 60*sec, 90*sec)
	})
}

// A coordinator with slow answers, so that a worker reads old data: leases counted from the wrong end would overlap.
func TestFleetWithASlowCoordinator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 200)
		w.coord.slow = 700 * time.Millisecond
		views := w.join(6)
		w.run(40 * sec)
		for range 3 {
			for _, v := range views[:3] {
				v.cut.Store(true)
			}
			w.run(25 * sec)
			for _, v := range views[:3] {
				v.cut.Store(false)
			}
			w.join(1)
			w.run(25 * sec)
		}
		w.end()
		if p := w.peak(0, sec); p > most(sec) {
			t.Errorf("the busiest second had %.3f of the limit", p)
		}
		if a := w.average(40*sec, 190*sec); a < 0.6 {
			t.Errorf("only %.3f of the limit was used", a)
		}
	})
}

// leaders is a coordinator that records every grants record written.
type leaders struct {
	fleet.Memory
	t       *testing.T
	written []written
}

type written struct {
	Epoch, Seq uint64
	Leader     string
	Limits     []int64
	Workers    map[string]struct {
		Rate, Safe []int64
		HeldRate   []int64 `json:"held_rate"`
		HeldSafe   []int64 `json:"held_safe"`
	}
}

func (l *leaders) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	v, err := l.Memory.Put(ctx, name, value, version)
	if err == nil && name == "grants" {
		var w written
		if err := json.Unmarshal(value, &w); err != nil {
			l.t.Error(err)
		}
		l.written = append(l.written, w) // writes run one at a time, and this one succeeded
	}
	return v, err
}

// However many workers start at once, each epoch has one leader, and the grants never add up to more than the limit.
func TestOneLeaderAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leaders{t: t}
		var govs []*governor.Governor
		for range 20 {
			g, err := governor.New(governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 100, Coordinator: l, Refresh: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			govs = append(govs, g)
		}
		for len(govs) > 1 { // the leader leaves, again and again
			time.Sleep(10 * time.Second)
			lead := 0
			for i, g := range govs {
				if g.Status().Fleet.Leads {
					lead = i
				}
			}
			if err := govs[lead].Close(); err != nil {
				t.Error(err)
			}
			govs = append(govs[:lead], govs[lead+1:]...)
		}
		if err := govs[0].Close(); err != nil {
			t.Error(err)
		}
		led := make(map[uint64]string)
		for i, w := range l.written {
			if w.Leader != "" && led[w.Epoch] != "" && led[w.Epoch] != w.Leader {
				t.Errorf("epoch %d: %s and %s", w.Epoch, led[w.Epoch], w.Leader)
			}
			if w.Leader != "" {
				led[w.Epoch] = w.Leader
			}
			if i > 0 && w.Epoch < l.written[i-1].Epoch {
				t.Errorf("epoch %d after %d", w.Epoch, l.written[i-1].Epoch)
			}
			var out int64
			for _, one := range w.Workers {
				out += max(one.Rate[0], one.Safe[0], one.HeldRate[0], one.HeldSafe[0])
			}
			if out > 100_000 {
				t.Errorf("epoch %d, seq %d: %d may be used of %d", w.Epoch, w.Seq, out, w.Limits[0])
			}
		}
		if len(led) != 19 { // the last leader had no time to
			t.Errorf("%d epochs", len(led))
		}
	})
}

func TestClosedGovernorsLetNothingPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := governor.New(governor.Config{ReadUnits: 10, WriteUnits: 10, Coordinator: &fleet.Memory{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Spend(t.Context(), governor.Write, 5); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
		var wait *governor.WaitError
		if err := g.Spend(t.Context(), governor.Write, 5); !errors.Is(err, governor.ErrClosed) || !errors.As(err, &wait) {
			t.Errorf("got %v", err)
		}
	})
}
