package report_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/report"
)

func TestWidth(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tt := range []struct {
		length, least time.Duration
		most          int
		want          time.Duration
	}{
		{time.Minute, 0, 60, time.Second},
		{time.Minute + 1, 0, 60, 2 * time.Second},
		{0, 0, 60, 100 * time.Millisecond},
		{0, time.Second, 60, time.Second},
		{day, 0, 60, 30 * time.Minute},
		{60 * 28 * day, 0, 60, 28 * day},
		{60*28*day + 60, 0, 60, 56 * day},
	} {
		got := report.Width(tt.length, tt.least, tt.most)
		if got != tt.want || got*time.Duration(tt.most) < tt.length {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestSmallest(t *testing.T) {
	t.Parallel()
	tried := weir.PerMinute("rpm", 100).WithBurst(10)
	for want := range int64(2000) {
		enough := func(l weir.Limit) bool { return l.Amount >= want }
		found := report.Smallest(tried, 0, enough)
		if found == nil || found.Amount != max(1, want) || found.Burst != max(1, found.Amount/10) {
			t.Fatalf("%d: %v", want, found)
		}
	}
	if found := report.Smallest(tried, 0, func(weir.Limit) bool { return false }); found != nil {
		t.Errorf("nothing is enough, but %v is", found)
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()
	count := report.Count(func(n int64) string { return "<" + strconv.FormatInt(n, 10) + ">" })
	var lines report.Lines
	lines.Add("calls", "%v of %v, %.1f %%, %s", 3, uint64(4), report.Part(3, 4), "more")
	if got := lines[0].Text(count); got != "<3> of <4>, 75.0 %, more" {
		t.Error(got)
	}
	var table report.Table
	table.Row("a", 1, report.Number("2 %"), report.Bounds{Least: 1, Most: 2}, "b")
	table.Row("c", nil, nil, report.Bounds{Least: 3, Most: 3}, "d")
	rows, right := table.Texts(count)
	if !slices.Equal(right, []int{1, 2, 3}) || strings.Join(rows[0], "|")+"/"+strings.Join(rows[1], "|") !=
		"a|<1>|2 %|<1> to <2>|b/c|||<3>|d" {
		t.Errorf("%v, right %v", rows, right)
	}
	page := string(report.Page(&report.Document{Title: "a<b", Parts: []any{
		lines,
		report.Text{Style: report.Bad, Lines: []string{"x", "y&z"}},
		report.Chart{Title: "empty chart"},
		report.Chart{Title: "one", Labels: []string{"0s", "1s"}, Lines: []report.Series{{"l", []float64{0}}}},
	}}))
	for _, want := range []string{
		"<h1>a&lt;b</h1>", "<td>3 of 4, 75.0 %, more</td>", `<p class="bad">x<br>y&amp;z</p>`, `aria-label="one"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in %s", want, page)
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "empty chart") {
		t.Error(page)
	}
}
