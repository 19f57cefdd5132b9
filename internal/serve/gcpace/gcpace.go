// Package gcpace lets a small heap grow between garbage collections.
package gcpace

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Least lets the heap grow by at least n bytes between two collections, however little of it is in use. By default, a
// process with little in use collects many times a second under load, each time on all processors, which delays
// whatever else the machine does. A memory limit still applies. Least is for programs: it replaces their GC percentage,
// for good.
func Least(n uint64) { (&cycle{least: n, percent: usual}).ended() }

const (
	usual = 100     // the default GC percentage
	small = 4 << 20 // a heap is collected at this size at the earliest, times the percentage
)

// cycle is garbage from the start, so that the next collection runs its finalizer, which makes it garbage again for the
// one after.
type cycle struct {
	least   uint64
	percent uint64
}

// ended sets the percentage for the next collection, by what is in use after the last.
func (c *cycle) ended() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	used := max(small, sample[0].Value.Uint64())
	percent := max(usual, usual*c.least/used)
	if d := max(percent, c.percent) - min(percent, c.percent); 10*d > c.percent { // it stops the world
		c.percent = percent
		debug.SetGCPercent(int(percent))
	}
	runtime.SetFinalizer(c, (*cycle).ended)
}
