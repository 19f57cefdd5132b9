package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/bench/internal/harness"
)

// TestRows runs each row for a moment, to check that it still works. Rows that take long to set up are left out.
func TestRows(t *testing.T) {
	t.Parallel()
	for _, r := range rows() {
		if r.once() || strings.Contains(r.name, "100,000") || strings.Contains(r.name, "10,000 buckets") {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			o := harness.Options{Rounds: 1, Length: 10 * time.Millisecond, Dir: t.TempDir(), Progress: io.Discard}
			res, err := o.Measure(r.measured())
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Contenders) == 0 {
				t.Skip("no contender is installed")
			}
			for i, c := range res.Contenders {
				if len(res.Samples[i]) != 1 || res.Samples[i][0].Figure <= 0 {
					t.Errorf("%s: %+v", c.Name, res.Samples[i])
				}
			}
		})
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	// of returns a result whose contenders have these figures.
	of := func(r row, samples ...[]harness.Sample) result {
		res := harness.Result{Samples: samples}
		for i := range samples {
			res.Contenders = append(res.Contenders, harness.Contender{Name: []string{"weir", "peer"}[i]})
		}
		return result{r, res}
	}
	figures := func(all ...float64) (samples []harness.Sample) {
		for _, f := range all {
			samples = append(samples, harness.Sample{Figure: f})
		}
		return samples
	}
	for _, tt := range []struct {
		name   string
		r      result
		want   []string
		missed int
	}{
		{
			name: "no target", r: of(row{unit: nanoseconds}, figures(1, 3, 2)), want: []string{"2.0 ns", "1.0–3.0"},
		},
		{
			// 2, 2 and 1/2 times the peer's figure of the same round; the ratio of the medians would be 1.
			name: "ratio by rounds",
			r:    of(row{unit: nanoseconds, target: target{ratio: 1.5}}, figures(200, 400, 100), figures(100, 200, 200)),
			want: []string{"2.00 ×", "miss: ≤ 1.50 × peer MISSED"}, missed: 1,
		},
		{
			name: "rate",
			r:    of(row{unit: perSecond, target: target{ratio: 0.8, value: 1_000_000}}, figures(900_000), figures(1_000_000)),
			want: []string{"900,000/s", "0.90 ×", "miss: ≥ 0.80 × peer, ≥ 1,000,000/s MISSED"}, missed: 1,
		},
		{
			name: "allocations",
			r: of(row{unit: nanoseconds, target: target{value: 15, hasAllocs: true}},
				[]harness.Sample{{Figure: 14, Allocs: 0.004}}),
			want: []string{"pass: ≤ 15.0 ns, ≤ 0 allocs"},
		},
		{
			name: "calls",
			r: of(row{unit: perSecond, target: target{calls: 1, callRate: 10}},
				[]harness.Sample{{Figure: 14, Calls: 1.0004, CallRate: 11}}),
			want: []string{"11.0/s", "miss: ≤ 1 calls/op, ≤ 10 calls/s MISSED"}, missed: 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if missed := write(&out, []result{tt.r}); missed != tt.missed {
				t.Errorf("%d missed, want %d", missed, tt.missed)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in\n%s", want, out.String())
				}
			}
		})
	}
}

// TestPart checks the part of docs/benchmarks.md.
func TestPart(t *testing.T) {
	t.Parallel()
	var results []result
	for _, r := range rows() {
		res := result{r, harness.Result{Row: r.measured()}}
		for range r.contenders {
			res.Samples = append(res.Samples, []harness.Sample{
				{Figure: 3, Allocs: 3}, {Figure: 1, Allocs: 3}, {Figure: 2, Allocs: 3},
			})
		}
		results = append(results, res)
	}
	var b bytes.Buffer
	writePart(&b, "By a test.", results)
	for _, want := range []string{
		"\n\nBy a test.\n\n| benchmark | | figure |", "\n| bucket: debit | weir | 2.0 ns | 1.0–3.0 | 0.0 ns | 3.00 |",
		"\n|  | bare bbolt | 2.0/s | 1.0–3.0 | 0.0 ns | 3.00 |  | 1.00 × |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
}

// TestAgainst compares results with the page that is made of them, then with one that recorded half the ratio.
func TestAgainst(t *testing.T) {
	t.Parallel()
	r := row{
		name: "memory: a row", unit: nanoseconds,
		contenders: []contender{{name: "weir"}, {name: "peer"}, {name: "new peer"}},
	}
	res := result{r, harness.Result{Row: r.measured()}}
	for _, cpu := range []float64{300, 100, 100} {
		res.Samples = append(res.Samples, []harness.Sample{{Figure: 1, CPU: cpu}})
	}
	var page bytes.Buffer
	writePart(&page, "By a test.", []result{res})
	text := strings.ReplaceAll(page.String(), "new peer", "former peer")
	for _, tt := range []struct {
		page  string
		want  string
		worse int
	}{
		{text, "memory: a row           peer  3.00 ×    3.00 ×", 0},
		{strings.ReplaceAll(text, "3.00 ×", "1.50 ×"), "1.50 ×    3.00 ×  WORSE", 1},
		{strings.ReplaceAll(text, "3.00 ×", "6.00 ×"), "6.00 ×    3.00 ×  better", 0},
	} {
		was, err := ratios(strings.NewReader(tt.page))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if worse := compare(&out, []result{res}, was); worse != tt.worse {
			t.Errorf("%d worse, want %d", worse, tt.worse)
		}
		if !strings.Contains(out.String(), tt.want) || strings.Contains(out.String(), "new peer") {
			t.Errorf("%q is not in\n%s", tt.want, &out)
		}
	}
}
