package load_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// BenchmarkSchedule runs a schedule against a target that answers at once, and reports by how much calls began late, as
// percentiles. Run it on one core: go test -bench Schedule -benchtime 200000x -cpu 1. Ten million calls a second leave no
// time to wait for due times, so calls/s is then the runner's maximum.
func BenchmarkSchedule(b *testing.B) {
	for _, rate := range []float64{20_000, 100_000, 200_000, 10e6} {
		b.Run(fmt.Sprintf("%.0fps", rate), func(b *testing.B) {
			warm := traffic.Span(0)
			sc, err := traffic.Named("stress")
			if err != nil {
				b.Fatal(err)
			}
			p, err := traffic.NewPlan(sc, traffic.Settings{Seed: 1, Rate: rate, For: traffic.Span(max(time.Millisecond, time.Duration(float64(b.N)/rate*1e9))), WarmUp: &warm})
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			t, err := load.Run(b.Context(), p, load.Nothing{}, load.Options{Precise: true})
			if err != nil {
				b.Fatal(err)
			}
			r := load.NewReport(p, t)
			b.ReportMetric(r.Rate, "calls/s")
			b.ReportMetric(r.Late.P50*1e3, "late-p50-µs")
			b.ReportMetric(r.Late.P99*1e3, "late-p99-µs")
			b.ReportMetric(float64(r.Missed), "missed")
		})
	}
}
