package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/bench/internal/harness"
)

var brief = harness.Options{Length: 20 * time.Millisecond, Quick: true, Progress: io.Discard}

// TestCurves measures the first point of each line, and expects what every point has.
func TestCurves(t *testing.T) {
	t.Parallel()
	for _, c := range curves() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i := range c.series {
				c.series[i].at = c.series[i].at[:1]
			}
			lines, err := c.measure(brief, 1e7)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range lines {
				if len(l.points) == 0 {
					continue // not installed
				}
				p, remote := l.points[0], l.store != memoryStore && l.store != diskStore
				if p.p50 <= 0 || p.p99 < p.p50 || remote != (p.calls > 0) {
					t.Errorf("%s: %+v", l.store, p)
				}
				if onDynamo := l.store == dynamoStore || l.store == simulated; onDynamo != (p.money > 0) {
					t.Errorf("%s: %+v", l.store, p)
				}
			}
			picture := string(c.draw(lines))
			if !strings.Contains(picture, "latency, µs") || !strings.Contains(picture, "<polyline") {
				t.Error(picture)
			}
		})
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	got := page(time.Now(), "It was busy.")
	if !bytes.Contains(got, []byte("| note | It was busy. |\n")) {
		t.Errorf("the note is not on\n%s", got)
	}
	for _, c := range curves() {
		if c.why == "" || !bytes.Contains(got, []byte("("+c.picture()+")\n\n"+c.why)) {
			t.Errorf("%s is not on\n%s", c.name, got)
		}
	}
}
