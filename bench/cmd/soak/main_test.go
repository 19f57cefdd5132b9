package main

import (
	"strings"
	"testing"
	"time"
)

// TestCompare expects what grows between the halves to be reported, and what does not to pass.
func TestCompare(t *testing.T) {
	t.Parallel()
	steady := []sample{{100e6, 1, 50, 10 * time.Millisecond}, {110e6, 1, 54, 12 * time.Millisecond}}
	for _, tt := range []struct {
		name, want string
		late       sample
	}{
		{"steady", "", sample{112e6, 1, 55, 14 * time.Millisecond}},
		{"memory", "memory grew from 105.0 to 130.0 MB", sample{130e6, 1, 52, 10 * time.Millisecond}},
		{"goroutines", "goroutines grew from 52 to 70", sample{105e6, 1, 70, 10 * time.Millisecond}},
		{"latency", "the p99 went from 11ms to 30ms", sample{105e6, 1, 52, 30 * time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := compare(middle(steady), middle([]sample{tt.late, tt.late}))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Error(err)
			}
		})
	}
}

// TestOver expects more than a burst and what is refilled to be an error, without what was rolled back.
func TestOver(t *testing.T) {
	t.Parallel()
	d := &driver{net: make(map[string]int64)}
	d.admitted("key", 3*perSecond+1)
	if err := d.over(2 * time.Second); err == nil {
		t.Error("one too many passes")
	}
	d.admitted("key", -1)
	if err := d.over(2 * time.Second); err != nil {
		t.Error(err)
	}
}
