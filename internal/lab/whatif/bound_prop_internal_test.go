package whatif

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
)

// TestBoundsHold checks that, whatever requests come when, what a limit refuses lies within the bounds of their windows.
func TestBoundsHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		noon := clock.Epoch.AddDate(2, 0, 0)
		l := weir.Limit{
			Name: "rpm", Amount: rapid.Int64Range(1, 120).Draw(t, "amount"),
			Period: rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 10 * time.Minute, time.Hour}).Draw(t, "period"),
		}
		l.Burst = rapid.Int64Range(1, 200).Draw(t, "burst")
		p := clock.Params{Amount: 1000 * l.Amount, Period: int64(l.Period), Burst: 1000 * l.Burst}
		const hours = 4
		type sums struct {
			n, refused float64
			minutes    [60]float64
		}
		var windows [hours]sums
		at, end, level := noon, noon.Add(hours*time.Hour), int64(math.MinInt64)
		dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		most := rapid.IntRange(1, 150).Draw(t, "requests in a row")
		rest := time.Duration(rapid.IntRange(30, 400).Draw(t, "rest")) * time.Second
		onEdge := rapid.Float64Range(0, 1).Draw(t, "on edge")
		for at.Before(end) {
			for range 1 + dice.IntN(most) {
				d := at.Sub(noon)
				w := &windows[int(d/time.Hour)]
				w.n++
				w.minutes[int(d/time.Minute)%60]++
				after, ok := p.Debit(level, clock.Nanos(at), 1000)
				if !ok {
					w.refused++
				}
				level = after
				if at = at.Add(time.Duration(dice.IntN(2)) * time.Millisecond); !at.Before(end) {
					break
				}
			}
			at = at.Add(time.Duration(dice.Int64N(int64(rest))))
			if dice.Float64() < onEdge { // right before the end of a minute or an hour
				unit := time.Minute
				if dice.IntN(3) == 0 {
					unit = time.Hour
				}
				at = at.Truncate(unit).Add(unit - time.Duration(dice.IntN(30))*time.Millisecond)
			}
		}
		tr := newTrial(l)
		var total bounds
		refused := 0.0
		for i := range windows {
			w := &windows[i]
			if w.n == 0 {
				continue
			}
			peak := 0.0
			for _, m := range w.minutes {
				peak = max(peak, m)
			}
			start := noon.Add(time.Duration(i) * time.Hour)
			b := tr.see(&window{start: start, end: start.Add(time.Hour), spent: w.n, peak: peak, request: 1})
			total = total.plus(b)
			refused += w.refused
			if w.refused > b.most+1e-6 {
				t.Fatalf("hour %d: %g of %g were refused, at most %g (%+v, peak %g)", i, w.refused, w.n, b.most, l, peak)
			}
		}
		if refused < total.least-1e-6 || refused > total.most+1e-6 {
			t.Fatalf("%g were refused, from %g to %g", refused, total.least, total.most)
		}
	})
}
