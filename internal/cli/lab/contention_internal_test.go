package lab

import (
	"math"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/simulate"
)

// TestOneModel: weir cost estimates as many writes as weir simulate makes for the same traffic, once each process knows
// the buckets. What a run has more at its beginning is the first guess of each process and bucket.
func TestOneModel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                      string
		processes, entities, rate int
		length                    time.Duration
		limit                     string
	}{
		{"many write few buckets", 20, 50, 1000, 30 * time.Second, "12K/min"},
		{"few write many buckets", 5, 200, 1000, 20 * time.Second, "3K/min"},
		{"a hot key", 4, 1, 400, 20 * time.Second, "240K/min"},
		{"near the limit", 10, 20, 200, time.Minute, "720/min"},
		{"a hundred processes", 100, 20, 1000, 20 * time.Second, "30K/min"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			limit, err := weir.ParseLimit("requests:" + tt.limit)
			if err != nil {
				t.Fatal(err)
			}
			run, err := simulate.Run(t.Context(), simulate.Config{
				Seed: 7, Processes: tt.processes, Entities: tt.entities, Rate: float64(tt.rate), For: tt.length, Limit: limit,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			asked, calls := 0, 0
			for _, in := range run.Intervals[len(run.Intervals)/2:] {
				asked, calls = asked+in.Asked, calls+in.Calls
			}
			tr := cost.Default()
			tr.Requests, tr.Processes, tr.Entities = float64(tt.rate), float64(tt.processes), float64(tt.entities)
			if err := contend(t.Context(), &tr, tt.limit); err != nil {
				t.Fatal(err)
			}
			p, err := cost.ReadPrices(cost.DefaultPrices)
			if err != nil {
				t.Fatal(err)
			}
			e, err := tr.Of(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, want := e.PerRequest.Write, float64(calls)/float64(asked)
			t.Logf("%.3f writes a decision, simulated %.3f, %.3f with the beginning", got, want, run.PerAsked)
			if math.Abs(got-want) > 0.05*want {
				t.Errorf("%.3f writes a decision, simulated %.3f", got, want)
			}
		})
	}
}

// What is given is not simulated, and a process alone writes nothing in vain.
func TestNoContention(t *testing.T) {
	t.Parallel()
	share := 0.5
	for name, q := range map[string]*costFlags{
		"alone": {costRequests: costRequests{Rate: "1/s"}},
		"given": {costRequests: costRequests{Rate: "1000/s", InVain: &share}},
	} {
		tr, _, err := q.parse(t.Context())
		want := map[string]float64{"alone": 0, "given": share}[name]
		if err != nil || tr.InVain != want || tr.PerWrite != 1 {
			t.Errorf("%s: %g wrong, %g callers a write, %v", name, tr.InVain, tr.PerWrite, err)
		}
	}
	q := &costFlags{costRequests: costRequests{Rate: "100/s", Limit: "many"}}
	if _, _, err := q.parse(t.Context()); err == nil {
		t.Error("a limit that is none is accepted")
	}
}
