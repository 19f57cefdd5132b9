package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/chart"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/simulate"
)

// curve varies one thing.
type curve struct {
	name, x string
	set     func(w *work, x int)
	series  []series
	why     string // why the lines bend
}

// series is where a curve is measured, and at what.
type series struct {
	store string
	at    []float64
}

const (
	memoryStore = "memory"
	diskStore   = "disk"
	redisStore  = "Redis"
	dynamoStore = "DynamoDB"
	simulated   = "simulated fleet on DynamoDB"
)

// everywhere measures on all stores at the same points.
func everywhere(at ...float64) []series {
	return []series{{memoryStore, at}, {diskStore, at}, {redisStore, at}, {dynamoStore, at}}
}

func curves() []curve {
	return []curve{
		{
			"entities", "entities, each with a bucket", func(w *work, x int) { w.entities = x },
			[]series{
				{memoryStore, []float64{1e3, 1e4, 1e5, 1e6, 1e7}},
				{diskStore, []float64{1e3, 1e4, 1e5, 1e6, 1e7}},
				{redisStore, []float64{1e3, 1e4, 1e5, 1e6}},
				{dynamoStore, []float64{1e3, 1e4, 1e5}},
			},
			"A limiter caches 200,000 records (`Config.CacheEntries`), some three for each entity. Beyond that, a " +
				"decision also looks them up, for which callers wait for each other, memory grows by the buckets " +
				"alone, and DynamoDB and Redis are read. Of more than 65,536 buckets, DynamoDB writes some twice.",
		},
		{
			"limits", "limits of a bucket", func(w *work, x int) { w.limits = x }, everywhere(1, 2, 4, 8, 16, 32, 64),
			"Each limit is checked and counted. On DynamoDB, each KB of an item is a write unit, and some 20 limits " +
				"with short names fill one.",
		},
		{
			"chain", "entities of a chain", func(w *work, x int) { w.depth = x }, everywhere(1, 2, 3, 4, 6, 8),
			"Each level is a bucket. On DynamoDB it is also a write, sent with the others, and those of a parent " +
				"are shared by the callers of a process; on Redis one script covers the chain.",
		},
		{
			"processes", "processes that decide on one bucket", func(w *work, x int) { w.processes, w.entities = x, 1 },
			[]series{
				{redisStore, []float64{1, 2, 4, 8, 16, 32, 64}},
				{dynamoStore, []float64{1, 2, 4, 8, 16, 32, 64}},
				{simulated, []float64{1, 10, 100, 1e3, 1e4, 1e5, 1e6}},
			},
			"A process shares a write among its callers, which fewer callers for each process undo. The simulated " +
				"fleet makes 10,000 decisions a second, more than an item of DynamoDB takes: the bucket is split, " +
				"and each process first meets the parts.",
		},
		{
			"callers", "callers of one process", func(w *work, x int) { w.callers = x },
			everywhere(1, 4, 16, 64, 256, 1024, 4096),
			"More callers than cores wait for each other: the rate is constant, and latency grows with their number. " +
				"From some 64 callers on, a script on Redis decides for several; on DynamoDB, callers of the same " +
				"bucket share a write.",
		},
		{
			"age", "decisions that the store has made before", func(w *work, x int) { w.age = x },
			[]series{
				{memoryStore, []float64{1e3, 1e4, 1e5, 1e6}},
				{diskStore, []float64{1e3, 1e4, 1e5, 1e6}},
				{redisStore, []float64{1e3, 1e4, 1e5, 1e6}},
				{dynamoStore, []float64{1e3, 1e4, 1e5}},
			},
			"Nothing should bend: a bucket keeps counters, and no history. On disk, a bucket reserves " +
				"about a second's use at once, which is little before it is used.",
		},
	}
}

// picture returns the file of the curve's picture, beside the page.
func (c curve) picture() string { return "img/growth-" + c.name + ".svg" }

func (c curve) draw(lines []line) []byte {
	f := chart.Figure{Title: "Cost by " + c.x, X: c.x}
	panel := func(title string, dashed bool, of func(point) float64) {
		at := -1
		for i := range f.Panels {
			if f.Panels[i].Title == title {
				at = i
			}
		}
		var drawn []chart.Series
		for _, l := range lines {
			s := chart.Series{Name: l.store, Dashed: dashed}
			for _, p := range l.points {
				if y := of(p); y > 0 {
					s.Points = append(s.Points, chart.Point{X: p.x, Y: y})
				}
			}
			if len(s.Points) > 0 {
				drawn = append(drawn, s)
			}
		}
		switch {
		case at >= 0:
			f.Panels[at].Series = append(f.Panels[at].Series, drawn...)
		case len(drawn) > 0:
			f.Panels = append(f.Panels, chart.Panel{Title: title, Series: drawn})
		}
	}
	const latency = "latency, µs: median, p99 dashed"
	panel("memory, MB", false, func(p point) float64 { return p.memory / 1e6 })
	panel(latency, false, func(p point) float64 { return p.p50 })
	panel(latency, true, func(p point) float64 { return p.p99 })
	panel("calls of the store per decision", false, func(p point) float64 { return p.calls })
	panel("USD per million decisions", false, func(p point) float64 { return p.money })
	return f.SVG()
}

// simulate returns what a fleet of processes costs in virtual time, on one bucket.
func (c curve) simulate(processes float64) (point, error) {
	cfg, _ := simulate.Named("hot-key")
	cfg.Processes = int(processes)
	r, err := simulate.Run(context.Background(), cfg, nil)
	if err != nil {
		return point{}, err
	}
	return point{
		p50: r.P50 * 1e3, p99: r.P99 * 1e3, calls: r.PerAsked, money: price(r.UnitsAsked),
	}, nil
}

// price returns what a million decisions cost that take so many write units each, in USD, by weir's price list.
func price(units float64) float64 {
	p, err := cost.ReadPrices(cost.DefaultPrices)
	if err != nil {
		panic(err) // it is a part of the command
	}
	return units * p.Write
}

const intro = `# How cost grows

<!-- Generated by make bench-growth. The next run overwrites edits made here. -->

What a decision costs as one thing grows, and all others stay: %d entities with a bucket of %d limit that is never
reached, one process, %d callers. Memory is what the limiter and the buckets take in the process, and on Redis what the
server takes besides. Calls are requests to DynamoDB and scripts on Redis. Money is that of DynamoDB's write units.
Processes are limiters with clients of their own; the simulated fleet is [weir simulate hot-key](try/simulate.md). Disk
is in mode ahead. Both axes are logarithmic. Others' figures are in [benchmarks](benchmarks.md).

    make bench-growth

| | |
|---|---|
| when | %s, in %.0f minutes |
| machine | %d cores, %s %s/%s |
`

func page(began time.Time, note string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, intro, usual.entities, usual.limits, usual.callers, began.UTC().Format("2006-01-02 15:04 UTC"),
		time.Since(began).Minutes(), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if note != "" {
		fmt.Fprintf(&b, "| note | %s |\n", note)
	}
	for _, c := range curves() {
		fmt.Fprintf(&b, "\n## By %s\n\n![Cost by %[1]s](%s)\n\n%s\n", c.x, c.picture(), c.why)
	}
	return b.Bytes()
}

// unused is a limit that admits everything, and hardly refills meanwhile.
func unused(name string) weir.Limit { return weir.PerDay(name, 1).WithBurst(1_000_000_000) }
