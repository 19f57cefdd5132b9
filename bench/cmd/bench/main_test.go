package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/bench/internal/readme"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
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
			o := options{rounds: 1, length: 10 * time.Millisecond, dir: t.TempDir(), progress: io.Discard}
			res, err := o.measure(r)
			if errors.Is(err, dynamotest.ErrNoEngine) && os.Getenv("CI") != "true" {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range r.contenders {
				if len(res.figures[i]) != 1 || res.figures[i][0] <= 0 {
					t.Errorf("%s: figures %v", c.name, res.figures[i])
				}
			}
		})
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	peers := []contender{{name: "weir"}, {name: "peer"}}
	none := [][]spent{{{}, {}, {}}, {{}, {}, {}}}
	for _, tt := range []struct {
		name   string
		r      result
		want   []string
		missed int
	}{
		{
			name: "no target",
			r:    result{row: row{unit: nanoseconds, contenders: peers[:1]}, figures: [][]float64{{1, 3, 2}}, spent: none},
			want: []string{"2.0 ns", "1.0–3.0"},
		},
		{
			// 2, 2 and 1/2 times the peer's figure of the same round; the ratio of the medians would be 1.
			name: "ratio by rounds",
			r: result{
				row:     row{unit: nanoseconds, contenders: peers, target: target{ratio: 1.5}},
				figures: [][]float64{{200, 400, 100}, {100, 200, 200}}, spent: none,
			},
			want: []string{"2.00 ×", "miss: ≤ 1.50 × peer MISSED"}, missed: 1,
		},
		{
			name: "rate",
			r: result{
				row:     row{unit: perSecond, contenders: peers, target: target{ratio: 0.8, value: 1_000_000}},
				figures: [][]float64{{900_000}, {1_000_000}}, spent: [][]spent{{{}}, {{}}},
			},
			want: []string{"900,000/s", "0.90 ×", "miss: ≥ 0.80 × peer, ≥ 1,000,000/s MISSED"}, missed: 1,
		},
		{
			name: "allocations",
			r: result{
				row:     row{unit: nanoseconds, contenders: peers[:1], target: target{value: 15, hasAllocs: true}},
				figures: [][]float64{{14}}, spent: [][]spent{{{allocs: 0.004}}},
			},
			want: []string{"pass: ≤ 15.0 ns, ≤ 0 allocs"},
		},
		{
			name: "calls",
			r: result{
				row:     row{unit: perSecond, contenders: peers[:1], target: target{calls: 1, callRate: 10}},
				figures: [][]float64{{14}}, spent: [][]spent{{{calls: 1.0004, rate: 11}}},
			},
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

// TestPart checks that the rows shown in the README exist, and are found in the page as written.
func TestPart(t *testing.T) {
	t.Parallel()
	var results []result
	for _, r := range rows() {
		res := result{row: r}
		for range r.contenders {
			res.figures, res.spent = append(res.figures, []float64{3, 1, 2}), append(res.spent, []spent{{allocs: 3}, {allocs: 3}, {allocs: 3}})
		}
		results = append(results, res)
	}
	var b bytes.Buffer
	writePart(&b, "By a test.", results)
	table, err := readme.Table(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n| Debit arithmetic | 2.0 ns, 3.00 allocs/op |",
		"\n| Disk, `always`, 64 callers, 100,000 keys | 2.0/s | bare bbolt 2.0/s (1.00 ×) |\n",
		"\n| Memory per bucket, without its key | 2.0 B | go-limiter 2.0 B (1.00 ×); map of x/time/rate",
	} {
		if !strings.Contains(string(table), want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	if len(readme.Picked(readme.Own)) == 0 {
		t.Error("README shows none")
	}
}
