package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirlimits/weir/bench/internal/measure"
)

const intro = `# Benchmarks beside peers

<!-- Made by make bench-peers. What is typed here is lost with the next run. -->

weir and other limiters, by turns in one run on one machine and on one store, in the same shapes; then all of them asked
whether they limit. A figure that is worse than a peer's is printed like any other, and no contender is tuned for a row.

    make bench-peers

installs the peers (zae-limiter in a Python environment of its own, envoyproxy/ratelimit from the module proxy), runs all,
writes this page, and what README shows of it. ` + "`make bench-peers ARGS='-row sliding -o /dev/stdout'`" + ` runs a part of it. The code is in
` + "[`bench/cmd/peers`](../bench/cmd/peers), [`bench/cmd/bench`](../bench/cmd/bench) and [`bench/py`](../bench/py)" + `.

`

const howto = `
**How to read the tables.** Each contender runs once a round, A B C, A B C, …; a figure is the median over the rounds, the
spread their lowest and highest rate. *weir's rate* and *weir's CPU* are weir's figure over the contender's, the median of
the rounds' ratios: a rate above 1.00 ×, or a CPU below it, is in weir's favour. CPU is the processor time of the client's
process for each operation (user and system, getrusage), of all its threads; it is steadier than the rate where
the machine has other work, but grows then, too, and most for who computes most. Calls are HTTP requests to the store for each operation. Failed are operations that ended in an error.
`

// parts are those of the page, in order, with what is to be known of each.
var parts = []struct{ name, about string }{
	{partLatency, `The operations of zae-limiter's own benchmarks, through the public API of each: a lease that is taken and committed, of
limits of a million a minute that are never hit (but for *refused*). Every round has new entities, whose
buckets were used twice before. All contenders use one local engine over loopback: weir and *read, then write* with a table as weir makes it, zae-limiter
with its own and its indexes. The engine takes a part of the machine, and its time is in the latencies. zae-limiter's aggregator
does not run: its buckets are too young to need it. *read, then write* is a token bucket that reads an item and puts it
back if nobody else did meanwhile, as mennanov/limiters does on DynamoDB, which cannot be had from the module proxy.`},
	{partThroughput, `The shapes of zae-limiter's throughput benchmarks. With threads it is its synchronous API on one repository, with asyncio its
asynchronous one; each is one process, as weir is.`},
	{partRedis, `One Redis each, over loopback; a limit that is never hit.`},
	{partService, `Two services in processes of their own behind the same gRPC client, with a limit that is never hit. CPU is that of the service's
process, without client and Redis, in steps of 10 ms.`},
	{partMemory, `No store: a limit that is never hit. x/time/rate and uber/ratelimit have no keys: for many, their limiters are in a sync.Map.
uber/ratelimit waits instead of refusing; here it never has to.`},
}

func writePage(out io.Writer, a about, results []result, own string, found []probed) {
	fmt.Fprint(out, intro)
	fmt.Fprintf(out, "| | |\n|---|---|\n| when | %s, in %.0f minutes |\n", a.when.UTC().Format("2006-01-02 15:04 UTC"), a.took.Minutes())
	fmt.Fprintf(out, "| machine | %d cores; load at the end %s |\n", a.cores, a.load)
	fmt.Fprintf(out, "| rounds | %d of %v each; half as long on Redis and in memory |\n", a.rounds, a.length)
	fmt.Fprintf(out, "| versions | %s |\n", strings.Join(a.versions, "<br>"))
	if a.note != "" {
		fmt.Fprintf(out, "| note | %s |\n", a.note)
	}
	fmt.Fprint(out, howto)
	for _, p := range parts {
		of := slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.part != p.name })
		if len(of) > 0 {
			fmt.Fprintf(out, "\n## %s\n\n%s\n\n", p.name, p.about)
			writeRows(out, of)
		}
	}
	fmt.Fprint(out, own)
	if len(found) > 0 {
		fmt.Fprint(out, "\n## Do they limit?\n\nEach is asked once. What is wrong is in bold.\n")
	}
	for _, p := range found {
		fmt.Fprintf(out, "\n### %s\n\n%s\n\n| | seen |\n|---|---|\n", p.name, p.what)
		for i, f := range p.findings {
			saw := f.saw
			if !f.right {
				saw = "**" + saw + "**"
			}
			fmt.Fprintf(out, "| %s | %s |\n", p.subjects[i].name, saw)
		}
	}
}

func writeRows(out io.Writer, rows []result) {
	fmt.Fprint(out, "| what | | rate | spread | p50 | p99 | CPU each | calls each | failed | weir's rate | weir's CPU |\n",
		"|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range rows {
		for i, c := range r.contenders {
			name, weirRate, weirCPU := "", "", ""
			if i == 0 {
				name = r.name
			} else if !strings.HasPrefix(c.name, "weir") {
				weirRate = ratio(r.each(0, rateOf), r.each(i, rateOf))
				weirCPU = ratio(r.each(0, cpuOf), r.each(i, cpuOf))
			}
			rates := r.each(i, rateOf)
			fmt.Fprintf(out, "| %s | %s | %s/s | %s–%s | %s | %s | %s | %s | %s | %s | %s |\n", name, c.name,
				number(measure.Median(rates)), number(slices.Min(rates)), number(slices.Max(rates)),
				micros(measure.Median(r.each(i, func(s *sample) float64 { return s.p50 }))),
				micros(measure.Median(r.each(i, func(s *sample) float64 { return s.p99 }))),
				nanos(measure.Median(r.each(i, cpuOf))), r.calls(i), r.failed(i), weirRate, weirCPU)
		}
	}
}

func rateOf(s *sample) float64 { return s.rate }

func cpuOf(s *sample) float64 { return s.cpu }

func ratio(weir, peer []float64) string {
	switch r := measure.Paired(weir, peer); {
	case r == 0:
		return ""
	case r < 0.1:
		return fmt.Sprintf("%.3f ×", r)
	case r >= 100:
		return number(r) + " ×"
	default:
		return fmt.Sprintf("%.2f ×", r)
	}
}

func (r result) calls(contender int) string {
	if r.part != partLatency && r.part != partThroughput {
		return ""
	}
	return fmt.Sprintf("%.2f", measure.Median(r.each(contender, func(s *sample) float64 { return s.calls })))
}

// failed returns the share of operations that failed, over all rounds.
func (r result) failed(contender int) string {
	var failed, ops int
	for _, s := range r.samples[contender] {
		failed, ops = failed+s.failed, ops+s.ops
	}
	if failed == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(failed)/float64(ops))
}

func micros(f float64) string {
	switch {
	case f == 0:
		return ""
	case f < 1000:
		return number(f) + " µs"
	}
	return fmt.Sprintf("%.1f ms", f/1000)
}

func nanos(f float64) string {
	switch {
	case f == 0:
		return ""
	case f < 1000:
		return number(f) + " ns"
	}
	return number(f/1000) + " µs"
}

func number(f float64) string {
	if f != float64(int64(f)) && f < 10 {
		return fmt.Sprintf("%.1f", f)
	}
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
