package lab

import (
	"math"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/simulate"
	"github.com/weirlimits/weir/internal/testkit/raced"
)

// TestOneModel checks that weir cost estimates as many write units as weir simulate counts for the same traffic, once
// each process knows the buckets and they are split. A run has more at its beginning: the first guess of each process
// and bucket.
func TestOneModel(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	for _, tt := range []struct {
		name                        string
		processes, entities, sample int
		rate                        float64
		length                      time.Duration
		limit                       string
	}{
		{"many write few buckets", 20, 50, 1, 1000, 30 * time.Second, "12K/min"},
		{"few write many buckets", 5, 200, 1, 1000, 20 * time.Second, "3K/min"},
		{"a hot key", 4, 1, 1, 400, 20 * time.Second, "240K/min"},
		{"near the limit", 10, 20, 1, 200, time.Minute, "720/min"},
		{"mostly refused", 10, 20, 1, 200, time.Minute, "60/min"},
		{"a hundred processes", 100, 20, 1, 1000, 20 * time.Second, "30K/min"},
		{"split in two", 100, 100, 25, 100_000, 20 * time.Second, "600K/min"},
		{"split in 16", 100, 1, 1, 10_000, 8 * time.Second, "6M/min"},
		{"split in 16, half refused", 100, 1, 1, 10_000, 8 * time.Second, "300K/min"},
		{"a quota used up", 100, 1, 1, 10_000, 4 * time.Second, "10/month@UTC"},
		{"split by few", 8, 1, 1, 10_000, 8 * time.Second, "6M/min"},
		{"not split by fewer", 4, 1, 1, 20_000, 5 * time.Second, "12M/min"},
		{"more than the table takes", 100, 1, 1, 100_000, 4 * time.Second, "60M/min"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			limit, err := weir.ParseLimit("requests:" + tt.limit)
			if err != nil {
				t.Fatal(err)
			}
			run, err := simulate.Run(t.Context(), simulate.Config{
				Seed: 7, Processes: tt.processes, Entities: tt.entities, Sample: tt.sample, Rate: tt.rate, For: tt.length,
				Limit: limit,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			asked, units := 0, 0
			for _, in := range run.Intervals[len(run.Intervals)/2:] {
				asked, units = asked+in.Asked, units+in.Units
			}
			tr := cost.Default()
			tr.Requests, tr.Processes, tr.Entities = tt.rate, float64(tt.processes), float64(tt.entities)
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
			got, want := e.PerRequest.Write, float64(units)/float64(asked)
			t.Logf("%.3f write units a decision, simulated %.3f, %.3f with the beginning", got, want, run.UnitsAsked)
			if math.Abs(got-want) > 0.1*want {
				t.Errorf("%.3f write units a decision, simulated %.3f", got, want)
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
	for _, rate := range []string{"1/s", "100/s"} {
		q := &costFlags{costRequests: costRequests{Rate: rate, Limit: "many"}}
		if _, _, err := q.parse(t.Context()); err == nil {
			t.Errorf("a limit that is none is accepted with %s", rate)
		}
	}
}
