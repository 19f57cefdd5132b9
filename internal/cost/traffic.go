package cost

import (
	"fmt"
	"math"
	"time"
)

// Booking says who books usage from the table's stream.
type Booking string

// Who books usage.
const (
	NoBooking Booking = "off"
	Function  Booking = "function" // the Lambda function of a deployment
	Process   Booking = "process"  // weir aggregate
)

// Traffic is what is asked of a table. Shares are from 0 to 1.
type Traffic struct {
	Requests  float64 `json:"requests_per_second"`
	Refused   float64 `json:"refused"`              // share of the requests
	ByParent  float64 `json:"refused_by_parent"`    // share of the refusals: the child was debited, and gets it back
	FromMem   float64 `json:"refused_again"`        // share of the refusals that are repeated from memory
	Cascade   float64 `json:"cascade"`              // share of the requests whose chain has Depth entities; the others have one
	Depth     int     `json:"depth"`                // at least 1
	Adjusts   float64 `json:"adjusts"`              // adjustments and rollbacks per admitted request
	Ahead     float64 `json:"prefetched"`           // share of the debits that were made ahead
	PerWrite  float64 `json:"callers_per_write"`    // who share one write, on average; at least 1
	InVain    float64 `json:"wrong_guesses"`        // share of the writes that are made twice
	New       float64 `json:"new_buckets"`          // share of the debits that make a bucket
	Entities  float64 `json:"entities"`             // that ask; on so many resources as Buckets says
	Buckets   float64 `json:"buckets"`              // that are written, parents' included; 0: as many as entities
	Processes float64 `json:"processes"`            // that decide
	TTL       float64 `json:"cache_seconds"`        // for which limits are remembered
	Hits      float64 `json:"hit_ratio"`            // of that memory; negative: as the other figures say
	Heartbeat bool    `json:"heartbeats,omitempty"` // processes tell of themselves, for local shares

	Booking      Booking `json:"booking"`
	Batch        float64 `json:"batch"`         // records that are booked at once, at most
	BatchSeconds float64 `json:"batch_seconds"` // for which they are waited for
	Shards       float64 `json:"stream_shards"`
	InvokeMillis float64 `json:"invoke_ms"` // a function's run
	MemoryGB     float64 `json:"memory_gb"`

	StorageGB float64 `json:"storage_gb"` // negative: estimated
	Backup    bool    `json:"backup"`     // point-in-time recovery
	Peak      float64 `json:"peak"`       // of the busiest second over the average; at least 1
	Target    float64 `json:"target"`     // share of provisioned capacity that is to be used
}

// Default is one request a second of one entity, decided by one process, with nothing else.
func Default() Traffic {
	return Traffic{
		Requests: 1, Depth: 2, PerWrite: 1, Entities: 1, Processes: 1, TTL: 60, Hits: -1, Booking: NoBooking, Batch: 1000,
		BatchSeconds: 5, Shards: 1, InvokeMillis: 100, MemoryGB: 0.25, StorageGB: -1, Peak: 2, Target: 0.7,
	}
}

// Check says what is out of range, in the words of the command's flags.
func (t *Traffic) Check() error {
	for _, f := range []struct {
		name      string
		v, lo, hi float64
		unit      string
	}{
		{"requests", t.Requests, 1e-9, 1e12, " a second"},
		{"refused", t.Refused, 0, 1, ""},
		{"refused-by-parent", t.ByParent, 0, 1, ""},
		{"refused-again", t.FromMem, 0, 1, ""},
		{"cascade", t.Cascade, 0, 1, ""},
		{"depth", float64(t.Depth), 1, 8, ""},
		{"adjusts", t.Adjusts, 0, 1000, ""},
		{"prefetched", t.Ahead, 0, 1, ""},
		{"callers-per-write", t.PerWrite, 1, 1e6, ""},
		{"wrong-guesses", t.InVain, 0, 1, ""},
		{"new-buckets", t.New, 0, 1, ""},
		{"entities", t.Entities, 1, 1e12, ""},
		{"buckets", t.Buckets, 0, 1e12, ""},
		{"processes", t.Processes, 1, 1e9, ""},
		{"cache-ttl", t.TTL, 0, 1e9, " seconds"},
		{"hit-ratio", t.Hits, -1, 1, ""},
		{"batch", t.Batch, 1, 10_000, ""},
		{"batch-window", t.BatchSeconds, 0, 300, " seconds"},
		{"stream-shards", t.Shards, 1, 1e6, ""},
		{"invoke-ms", t.InvokeMillis, 1, 900_000, ""},
		{"peak", t.Peak, 1, 1e6, ""},
		{"target", t.Target, 0.01, 1, ""},
	} {
		if math.IsNaN(f.v) || f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("--%s must be from %g to %g%s: %g", f.name, f.lo, f.hi, f.unit, f.v)
		}
	}
	switch t.Booking {
	case NoBooking, Function, Process:
		return nil
	}
	return fmt.Errorf("--usage %q is none of off, function, process", t.Booking)
}

// buckets are those that are written.
func (t *Traffic) buckets() float64 { return max(t.Buckets, t.Entities) }

// hits returns the share of look-ups that memory answers. A process remembers an entity from a look-up on for TTL; the
// next request of that entity after it, which comes 1/rate later on average, looks again.
func (t *Traffic) hits() float64 {
	if t.Hits >= 0 {
		return t.Hits
	}
	perPair := t.Requests / (t.Entities * t.Processes)
	return perPair * t.TTL / (1 + perPair*t.TTL)
}

// HitRatio is how much a memory of ttl saves whoever asks for one thing so often a second.
func HitRatio(rate float64, ttl time.Duration) float64 {
	t := Traffic{Requests: rate, Entities: 1, Processes: 1, TTL: ttl.Seconds(), Hits: -1}
	return t.hits()
}
