package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/weirlimits/weir/bench/internal/harness"
)

// write prints the table and returns the number of missed targets.
func write(out io.Writer, results []result) (missed int) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "benchmark\tcontender\tfigure\tspread\tcpu/op\tallocs/op\tcalls\tratio\tcpu ratio\ttarget\t")
	lines, missed := cells(results)
	for _, line := range lines {
		fmt.Fprintln(w, strings.Join(line, "\t")+"\t")
	}
	_ = w.Flush()
	return missed
}

const partAbout = `weir alone, or against what it is built on: a DynamoDB update without a limiter, ` +
	`an on-disk database without one, a server that
returns the same answer immediately. Some rows in memory have peers, too. ` +
	`*Ratio* is weir's figure divided by the contender's,
*CPU ratio* the same for the processor time per operation. For rates, more is better; for times and sizes, less. ` +
	`*Target* is
what weir should reach; targets that it misses are marked. Rows that measure a size, or something that takes long, are
measured once.`

// writePart writes the same table as a part of docs/benchmarks.md.
func writePart(out io.Writer, about string, results []result) {
	fmt.Fprintf(out, "\n## weir on its own, and against what it is built on\n\n%s\n\n%s\n\n", partAbout, about)
	fmt.Fprint(out, "| benchmark | | figure | spread | CPU/op | allocs/op | calls | ratio | CPU ratio | target |\n",
		"|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n")
	lines, _ := cells(results)
	for _, line := range lines {
		fmt.Fprintf(out, "| %s |\n", strings.Join(line, " | "))
	}
}

// cells returns the cells of the table, and the number of missed targets.
func cells(results []result) (lines [][]string, missed int) {
	for _, r := range results {
		for i, c := range r.Contenders {
			var name, cpu, allocs, called, ratio, cpuRatio, verdict string
			if !r.Once {
				cpu = nanoseconds.format(harness.Median(r.Each(i, cpuOf)))
				allocs = fmt.Sprintf("%.2f", r.median(i, allocsOf))
				called = r.called(i)
			}
			if i == 0 {
				name = r.row.name
				var fine bool
				if verdict, fine = r.verdict(); !fine {
					missed++
				}
			} else {
				ratio = fmt.Sprintf("%.2f ×", harness.Paired(r.figures(0), r.figures(i)))
				if !r.Once {
					cpuRatio = fmt.Sprintf("%.2f ×", harness.Paired(r.Each(0, cpuOf), r.Each(i, cpuOf)))
				}
			}
			lines = append(lines, []string{
				name, c.Name, r.unit.format(harness.Median(r.figures(i))), r.spread(i), cpu, allocs, called, ratio,
				cpuRatio, verdict,
			})
		}
	}
	return lines, missed
}

func cpuOf(s *harness.Sample) float64 { return s.CPU }

func allocsOf(s *harness.Sample) float64 { return s.Allocs }

func (r result) figures(contender int) []float64 {
	return r.Each(contender, func(s *harness.Sample) float64 { return s.Figure })
}

func (r result) median(contender int, of func(*harness.Sample) float64) float64 {
	return harness.Median(r.Each(contender, of))
}

// calls returns the store calls per counted operation, and per second.
func (r result) calls(contender int) (each, rate float64) {
	return r.median(contender, func(s *harness.Sample) float64 { return s.Calls }),
		r.median(contender, func(s *harness.Sample) float64 { return s.CallRate })
}

func (r result) called(contender int) string {
	each, rate := r.calls(contender)
	switch {
	case rate == 0:
		return ""
	case r.target.callRate > 0:
		return fmt.Sprintf("%.1f/s", rate)
	}
	return fmt.Sprintf("%.4f/op", each)
}

// spread returns the lowest and the highest figure.
func (r result) spread(contender int) string {
	lowest, highest := math.Inf(1), math.Inf(-1)
	for _, f := range r.figures(contender) {
		lowest, highest = min(lowest, f), max(highest, f)
	}
	return r.unit.number(lowest) + "–" + r.unit.number(highest)
}

// verdict says whether weir reaches its target.
func (r result) verdict() (text string, fine bool) {
	var parts []string
	fine = true
	judge := func(what string, got, want float64, least bool) {
		sign, ok := "≤", got <= want
		if least {
			sign, ok = "≥", got >= want
		}
		text := fmt.Sprintf("%s %s", sign, what)
		if !ok {
			text += " MISSED"
			fine = false
		}
		parts = append(parts, text)
	}
	least := r.unit == perSecond
	if t := r.target; t.ratio > 0 && len(r.Contenders) > 1 {
		judge(
			fmt.Sprintf("%.2f × %s", t.ratio, r.Contenders[1].Name), harness.Paired(r.figures(0), r.figures(1)),
			t.ratio, least,
		)
	}
	if t := r.target; t.value > 0 {
		judge(r.unit.format(t.value), harness.Median(r.figures(0)), t.value, least)
	}
	if t := r.target; t.hasAllocs {
		// The runtime's own allocations in a second are spread over the operations.
		judge(fmt.Sprintf("%g allocs", t.allocs), math.Floor(r.median(0, allocsOf)*100)/100, t.allocs, false)
	}
	each, rate := r.calls(0)
	if t := r.target; t.calls > 0 {
		judge(fmt.Sprintf("%g calls/op", t.calls), math.Floor(each*1000)/1000, t.calls, false)
	}
	if t := r.target; t.callRate > 0 {
		judge(fmt.Sprintf("%g calls/s", t.callRate), rate, t.callRate, false)
	}
	switch {
	case len(parts) == 0:
		return "-", true
	case fine:
		return "pass: " + strings.Join(parts, ", "), true
	default:
		return "miss: " + strings.Join(parts, ", "), false
	}
}

func (u unit) format(f float64) string {
	if u == perSecond {
		return u.number(f) + "/s"
	}
	return u.number(f) + " " + string(u)
}

func (u unit) number(f float64) string {
	switch {
	case u == calls && f < 10:
		return fmt.Sprintf("%.3f", f)
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	}
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
