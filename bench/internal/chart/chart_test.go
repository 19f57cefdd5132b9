package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"testing"

	"github.com/weirlimits/weir/bench/internal/chart"
)

var update = flag.Bool("update", false, "write testdata/golden.svg")

// TestSVG compares a figure with two panels, two lines of one color and a name to escape with the golden one.
func TestSVG(t *testing.T) {
	t.Parallel()
	const golden = "testdata/golden.svg"
	got := chart.Figure{
		Title: "Entities", X: "entities",
		Panels: []chart.Panel{
			{Title: "memory, MB", Series: []chart.Series{
				{Name: "disk", Points: []chart.Point{{X: 1000, Y: 1.5}, {X: 1e6, Y: 950}}},
			}},
			{Title: "latency, µs", Series: []chart.Series{
				{Name: "disk", Points: []chart.Point{{X: 1000, Y: 0.25}, {X: 1e6, Y: 4}}},
				{Name: "disk", Dashed: true, Points: []chart.Point{{X: 1000, Y: 10}, {X: 1e6, Y: 10}}},
				{Name: "R & D", Points: []chart.Point{{X: 1, Y: 1}}},
			}},
			{Title: "calls"},
		},
	}.SVG()
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("go test -update writes it; got\n%s", got)
	}
	for dec := xml.NewDecoder(bytes.NewReader(got)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
