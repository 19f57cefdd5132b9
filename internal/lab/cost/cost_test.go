package cost_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/report"
)

func prices(t *testing.T) cost.Prices {
	t.Helper()
	p, err := cost.ReadPrices(cost.DefaultPrices)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func estimate(t *testing.T, tr cost.Traffic, p cost.Prices) *cost.Estimate {
	t.Helper()
	e, err := tr.Of(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func near(got, want, by float64) bool { return math.Abs(got-want) <= by }

// TestScenarios: the worked examples of docs/operate/cost.md, with 10,000 requests in an hour. For the first, a limiter
// that reads before it writes states 10,000 RCU and 10,000 WCU; for the second, 15,600 and 25,000.
func TestScenarios(t *testing.T) {
	t.Parallel()
	simple := cost.Default()
	simple.Requests, simple.Hits, simple.TTL = 10_000.0/3600, 1, 3600
	e := estimate(t, simple, prices(t))
	if !near(e.Total.Write, 10_000, 0.01) || !near(e.Total.Read, 4, 0.01) {
		t.Errorf("simple: %g RCU, %g WCU", e.Total.Read, e.Total.Write)
	}
	llm := simple
	llm.Cascade, llm.Hits = 0.5, 0.98
	e = estimate(t, llm, prices(t))
	if want := 10_000*1.5*0.02*4 + 4; !near(e.Total.Write, 15_000, 0.01) || !near(e.Total.Read, want, 0.01) {
		t.Errorf("hierarchical: %g RCU, want %g; %g WCU", e.Total.Read, want, e.Total.Write)
	}
}

// TestDaily: 10,000 and a million requests a day, in months of 30 days. The writes are the 0.19 and 18.75 published for a
// limiter with one write per request; of its reads, 0.04 and 3.75, only look-ups remain.
func TestDaily(t *testing.T) {
	t.Parallel()
	p := prices(t)
	p.Hours = 720
	for _, tt := range []struct{ day, writes, reads float64 }{{10_000, 0.1875, 0.05}, {1_000_000, 18.75, 0.05}} {
		tr := cost.Default()
		tr.Requests = tt.day / 86_400
		e := estimate(t, tr, p)
		m := e.Money
		if !near(m.Items[0].Month, tt.writes, 1e-9) || m.Items[1].Month > tt.reads {
			t.Errorf("%g a day: %g for writes, %g for reads", tt.day, m.Items[0].Month, m.Items[1].Month)
		}
	}
}

// TestHitRatio: the published table, for steady requests of one entity to one process. Its look-ups are 3 reads.
func TestHitRatio(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate, hits, digits float64
	}{{1, 0.983, 0.001}, {10, 0.998, 0.0005}, {100, 0.9998, 0.00005}} {
		tr := cost.Default()
		tr.Requests, tr.Entities, tr.Processes, tr.TTL = tt.rate, 1, 1, 60
		got := estimate(t, tr, prices(t)).HitRatio
		if !near(got, tt.hits, tt.digits) {
			t.Errorf("%g a second: %.5f, published %g", tt.rate, got, tt.hits)
		}
		if units := 3 * (1 - got); !near(units, 0.05/tt.rate, 0.001/tt.rate) {
			t.Errorf("%g a second: %.5f RCU of three", tt.rate, units)
		}
	}
	// With the same requests from a thousand entities to ten processes, the cache saves next to nothing.
	tr := cost.Default()
	tr.Entities, tr.Processes = 1000, 10
	if e := estimate(t, tr, prices(t)); !near(e.HitRatio, 0.006, 0.0005) {
		t.Errorf("spread: %g", e.HitRatio)
	}
}

// TestShares: each share has the effect that its name describes.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*cost.Traffic)
		calls  float64 // per request, without look-ups
		write  float64
	}{
		{"admitted", func(*cost.Traffic) {}, 1, 1},
		{"refused", func(tr *cost.Traffic) { tr.Refused = 1 }, 1, 1},
		{"refused from memory", func(tr *cost.Traffic) { tr.Refused, tr.FromMem = 1, 1 }, 0, 0},
		{"refused by a parent", func(tr *cost.Traffic) { tr.Refused, tr.ByParent = 1, 1 }, 3, 3},
		{"half refused, half of these again", func(tr *cost.Traffic) { tr.Refused, tr.FromMem = 0.5, 0.5 }, 0.75, 0.75},
		{"cascade", func(tr *cost.Traffic) { tr.Cascade = 1 }, 2, 2},
		{"cascade of four", func(tr *cost.Traffic) { tr.Cascade, tr.Depth = 0.5, 4 }, 2.5, 2.5},
		{"adjusted", func(tr *cost.Traffic) { tr.Adjusts = 1 }, 2, 2},
		{"prefetched", func(tr *cost.Traffic) { tr.Ahead = 0.9 }, 0.1, 0.1},
		{"shared", func(tr *cost.Traffic) { tr.PerWrite = 4 }, 0.25, 0.25},
		{"wrong guesses", func(tr *cost.Traffic) { tr.InVain = 0.1 }, 1.1, 1.1},
		{"new", func(tr *cost.Traffic) { tr.New = 0.2 }, 1, 1.2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tr := cost.Default()
			tt.change(&tr)
			e := estimate(t, tr, prices(t))
			var calls, write float64
			for _, p := range e.Parts {
				if !strings.HasSuffix(p.Name, " lookups") && !strings.HasSuffix(p.Name, " counts") {
					calls, write = calls+p.Calls/3600, write+p.Write/3600
				}
			}
			if !near(calls, tt.calls, 1e-9) || !near(write, tt.write, 1e-9) {
				t.Errorf("%g calls, %g WCU; want %g, %g", calls, write, tt.calls, tt.write)
			}
			for _, p := range e.Parts {
				if p.Formula == "" || strings.Contains(p.Formula, "%!") {
					t.Errorf("%s: formula %q", p.Name, p.Formula)
				}
			}
		})
	}
}

// TestBreakEven: provisioned capacity is cheaper if enough of it is used, and BreakEvenPeak is the peak at which the
// comparison turns.
func TestBreakEven(t *testing.T) {
	t.Parallel()
	p := prices(t)
	if b := p.BreakEven(); !near(b, 0.65/2.25, 1e-9) {
		t.Errorf("break even at %g", b)
	}
	tr := cost.Default()
	tr.Requests, tr.Entities, tr.StorageGB = 100_000, 1, 0
	peak := estimate(t, tr, p).Money.BreakEvenPeak
	for _, tt := range []struct {
		peak    float64
		cheaper bool
	}{{peak * 0.99, true}, {peak * 1.01, false}} {
		tr.Peak = tt.peak
		if m := estimate(t, tr, p).Money; (m.Provisioned < m.Month) != tt.cheaper {
			t.Errorf("peak %g: provisioned %g, on demand %g", tt.peak, m.Provisioned, m.Month)
		}
	}
	// The least capacity is that of the template: 5 units of the table and of each of three indexes, 11.39 a month.
	tr.Requests = 1e-6
	if m := estimate(t, tr, p).Money; m.WriteCapacity != 20 || m.ReadCapacity != 20 || !near(m.Following, 11.39, 0.01) {
		t.Errorf("%+v", m)
	}
	tr.Floor = 1
	if m := estimate(t, tr, p).Money; m.WriteCapacity != 4 || !near(m.Following, p.Hours*4*(p.WriteHour+p.ReadHour), 0.03) {
		t.Errorf("of 1: %+v", m)
	}
}

// TestPace: a day's use, each day of a month, costs what the estimate of that use does.
func TestPace(t *testing.T) {
	t.Parallel()
	p := prices(t)
	tr := cost.Default()
	tr.Requests, tr.StorageGB, tr.Booking = 1e6/86_400, 0, cost.Function
	e := estimate(t, tr, p)
	write, read, second := p.Pace()
	var calls, busy float64
	for _, part := range e.Parts {
		if part.Name == "stream batches booked" {
			calls = part.Count * 24 / 1e6 * p.LambdaRequest * p.Hours / 24
			busy = part.Count * 24 * tr.InvokeMillis / 1000 * tr.MemoryGB
		}
	}
	got := e.Total.Write*24*write + e.Total.Read*24*read + busy*second
	if want := e.Money.Month - calls; !near(got, want, 1e-9*want) || busy == 0 {
		t.Errorf("%g a month, the estimate has %g", got, want)
	}
}

// TestMeasured: what a table consumed is priced at its pace, or what it has provisioned.
func TestMeasured(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	m := cost.Measured{
		Table: "limits", From: day, To: day.AddDate(0, 0, 2), Bytes: 4e9,
		Parts: []cost.MeasuredPart{{Write: 2e6, Read: 4e6}, {Index: "all", Write: 2e5}},
	}
	p := prices(t)
	p.Hours = 720
	b := m.Price(p)
	if !near(b.OnDemand, 30*(1.1*0.625+2*0.125), 1e-9) || !near(b.Storage, 1, 1e-9) || b.Month != b.OnDemand+b.Storage || b.Days != 2 {
		t.Errorf("on demand: %+v", b)
	}
	var lines []string
	for _, part := range b.Document().Parts {
		switch part := part.(type) {
		case report.Table:
			rows, _ := part.Texts(func(n int64) string { return strconv.FormatInt(n, 10) })
			for _, row := range rows {
				lines = append(lines, strings.Join(row, " "))
			}
		case report.Lines:
			for _, l := range part {
				lines = append(lines, l.Name+" "+l.Text(func(n int64) string { return strconv.FormatInt(n, 10) }))
			}
		}
	}
	want := []string{
		"table 2000000 1000000 26.25", "index all 0 100000 1.88", "total 2000000 1100000 28.12",
		"units on demand 28.12", "storage 1.00", "total 29.12",
		"measured units, by CloudWatch, for 2 days from 2026-11-20T00:00:00Z to 2026-11-22T00:00:00Z; 4 GB, which DynamoDB counts every six hours",
		"model a month of 720 hours at this pace, at the prices of us-east-1, list of 2024-11-01; functions, backups, streams, alarms and logs are not in it",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	m.WriteCapacity, m.ReadCapacity = 40, 20
	if b := m.Price(p); !near(b.Capacity, 720*(40*0.00065+20*0.00013), 1e-9) || b.Month != b.Capacity+b.Storage {
		t.Errorf("provisioned: %+v", b)
	}
}

// TestReserved: capacity is reserved in hundreds of units, for less than half its price.
func TestReserved(t *testing.T) {
	t.Parallel()
	p := prices(t)
	tr := cost.Default()
	tr.Requests, tr.Peak, tr.Target, tr.StorageGB = 250, 1, 1, 0
	m := estimate(t, tr, p).Money
	if m.WriteCapacity != 265 || m.Reserved.Write != 200 || m.Reserved.Read != 0 {
		t.Errorf("%+v", m)
	}
	if saved := m.Provisioned - m.Reserved.Month; !near(saved, 200*(0.00065-0.0002992)*730, 1e-6) {
		t.Errorf("%g saved a month", saved)
	}
	// The discount is the one that AWS states for a year.
	for _, share := range []float64{p.ReservedWrite / p.WriteHour, p.ReservedRead / p.ReadHour} {
		if !near(1-share, 0.54, 0.006) {
			t.Errorf("reserved capacity is %g cheaper, want 54 %%", 1-share)
		}
	}
	tr.Requests = 50
	if m := estimate(t, tr, p).Money; m.Reserved.Write != 0 || m.Reserved.Month != m.Provisioned {
		t.Errorf("less than a hundred: %+v", m)
	}
}

// TestBookingBatches: the longer the wait for records, the fewer batches there are, until batches are full.
func TestBookingBatches(t *testing.T) {
	t.Parallel()
	tr := cost.Default()
	tr.Requests, tr.Booking, tr.Entities = 10, cost.Function, 1000
	last := math.Inf(1)
	for _, window := range []float64{0, 1, 5, 60, 300} {
		tr.BatchSeconds = window
		e := estimate(t, tr, prices(t))
		if e.Total.Write >= last {
			t.Errorf("%g s: %g WCU an hour, %g before", window, e.Total.Write, last)
		}
		last = e.Total.Write
	}
	tr.Batch = 10
	if e := estimate(t, tr, prices(t)); !near(e.Parts[len(e.Parts)-1].Count, 3600, 1) {
		t.Errorf("full batches: %+v", e.Parts)
	}
}

func TestDistinct(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ n, buckets, want float64 }{{1, 1000, 1}, {10, 1, 1}, {1e6, 50, 50}, {2, 2, 1.5}} {
		if got := cost.Distinct(tt.n, tt.buckets); !near(got, tt.want, 1e-6) {
			t.Errorf("%g of %g: %g", tt.n, tt.buckets, got)
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	run, err := cost.ReadRun([]byte(`{"seconds":10,"asked":1000,"refused":100,"calls":500,"calls_in_vain":50,"write_units":450,"processes":4,"entities":7}`))
	if err != nil {
		t.Fatal(err)
	}
	tr := run.Traffic(cost.Default())
	e, err := tr.Of(prices(t), run)
	if err != nil {
		t.Fatal(err)
	}
	if p := e.Parts[0]; !near(p.Count, 360_000, 1e-6) || !near(p.Calls, 180_000, 1e-6) || !near(p.Write, 162_000, 1e-6) {
		t.Errorf("%+v", p)
	}
	if tr.Hits != -1 {
		t.Errorf("%g hits of a run that does not say", tr.Hits)
	}
	said, err := cost.ReadRun([]byte(`{"seconds":10,"asked":1000,"hit_ratio":0.25}`))
	if err != nil {
		t.Fatal(err)
	}
	if tr := said.Traffic(cost.Default()); tr.Hits != 0.25 {
		t.Errorf("%g hits, want what the run says", tr.Hits)
	}
	longer := cost.Default()
	longer.TTL = 600
	if tr := said.Traffic(longer); tr.Hits != -1 {
		t.Errorf("%g hits, though limits are remembered for longer", tr.Hits)
	}
	for _, bad := range []string{"", "{}", "[]", `{"seconds":1}`} {
		if _, err := cost.ReadRun([]byte(bad)); err == nil {
			t.Errorf("%q is a run", bad)
		}
	}
}

func TestPrices(t *testing.T) {
	t.Parallel()
	good := string(cost.DefaultPrices)
	for _, tt := range []struct{ old, with, want string }{
		{`"write_million": 0.625`, `"write_million": -1`, "write_million is too small"},
		{`"write_million": 0.625,`, ``, "write_million is missing"},
		{`"write_million"`, `"writes"`, "unknown field"},
		{`2024-11-01`, `yesterday`, "date"},
		{`us-east-1`, ``, "region"},
		{`730`, `0`, "hours_per_month"},
		{"}", "} {}", "after the JSON object"},
	} {
		_, err := cost.ReadPrices([]byte(strings.Replace(good, tt.old, tt.with, 1)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.want, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cost.Traffic){
		"--requests":          func(tr *cost.Traffic) { tr.Requests = 0 },
		"--refused must":      func(tr *cost.Traffic) { tr.Refused = 1.1 },
		"--cascade":           func(tr *cost.Traffic) { tr.Cascade = math.NaN() },
		"--depth":             func(tr *cost.Traffic) { tr.Depth = 9 },
		"--callers-per-write": func(tr *cost.Traffic) { tr.PerWrite = 0.5 },
		"--usage":             func(tr *cost.Traffic) { tr.Booking = "x" },
		"--target":            func(tr *cost.Traffic) { tr.Target = 0 },
	} {
		tr := cost.Default()
		change(&tr)
		if _, err := tr.Of(prices(t), nil); err == nil || !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUsageMonth: the table of docs/operate/cost.md, for a million requests a day of 1,000 entities. What is paid for
// decisions alone is 28.
func TestUsageMonth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		windows      string
		wait, batch  float64
		write, month float64
	}{
		{"", 5, 1000, 9.73, 197},
		{"daily", 5, 1000, 5.1, 110},
		{"", 300, 10_000, 3.36, 76},
		{"daily,monthly", 300, 10_000, 2.75, 64},
		{"daily", 300, 10_000, 2.15, 51},
	} {
		for _, shards := range []float64{1, 4} {
			tr := cost.Default()
			tr.Requests, tr.Entities, tr.Booking, tr.Shards = 1e6/86_400, 1000, cost.Function, shards
			tr.Windows, tr.BatchSeconds, tr.Batch = tt.windows, tt.wait, tt.batch
			e := estimate(t, tr, prices(t))
			if !near(e.PerRequest.Write, tt.write, 0.04*tt.write) || !near(e.Money.Month, tt.month, 0.05*tt.month) {
				t.Errorf("%+v, %g shards: %g WCU, %g a month", tt, shards, e.PerRequest.Write, e.Money.Month)
			}
		}
	}
}

// TestLoadRun: the report of a load run has writes of a table, or is refused.
func TestLoadRun(t *testing.T) {
	t.Parallel()
	run, err := cost.ReadRun([]byte(`{"scenario":"s","elapsed_seconds":20,"calls":1000,"refused":100,"workers":2,"entities":[{"name":"a"}],
		"store":{"wcu":{"total":800},"writes_applied":{"total":700},"calls":{"total":810},"reads":{"total":50}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := cost.Run{
		Requests: 1000, Seconds: 20, CallsPer: 0.81, WritePer: 0.8, AppliedPer: 0.7, Refused: 0.1, Processes: 2, Entities: 1, Hits: 0.95,
	}
	if *run != want {
		t.Errorf("%+v, want %+v", *run, want)
	}
	_, err = cost.ReadRun([]byte(`{"scenario":"s","elapsed_seconds":20,"calls":1000,"entities":[],"store":{"calls":{"total":810}}}`))
	if err == nil || !strings.Contains(err.Error(), "no DynamoDB table") {
		t.Errorf("of another store: %v", err)
	}
}
