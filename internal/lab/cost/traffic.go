package cost

import (
	"fmt"
	"math"

	"github.com/weirlimits/weir/store"
)

// Booking is what books usage from the table's stream.
type Booking string

// The values of Booking.
const (
	NoBooking Booking = "off"
	Function  Booking = "function" // the Lambda function of a deployment
	Process   Booking = "process"  // weir aggregate
)

// Traffic describes the load on a table. Shares are from 0 to 1.
type Traffic struct {
	Requests float64 `json:"requests_per_second"`
	Refused  float64 `json:"refused"` // share of the requests
	// Share of the refusals in which a parent refuses: the child was debited, and its tokens are returned.
	ByParent float64 `json:"refused_by_parent"`
	FromMem  float64 `json:"refused_again"` // share of the refusals that are repeated from memory
	// Share of the requests whose chain has Depth entities; the others have one.
	Cascade   float64 `json:"cascade"`
	Depth     int     `json:"depth"`                // at least 1
	Groups    float64 `json:"groups"`               // and totals with limits, of each entity charged, on average
	Adjusts   float64 `json:"adjusts"`              // adjustments and rollbacks per admitted request
	Ahead     float64 `json:"prefetched"`           // share of the debits that were prefetched
	PerWrite  float64 `json:"callers_per_write"`    // callers that share one write, on average; at least 1
	InVain    float64 `json:"wrong_guesses"`        // share of the writes that are made twice
	New       float64 `json:"new_buckets"`          // share of the debits that create a bucket
	Entities  float64 `json:"entities"`             // that send requests; Buckets covers the resources
	Buckets   float64 `json:"buckets"`              // that are written, including parents'; 0: as many as entities
	Processes float64 `json:"processes"`            // that decide
	TTL       float64 `json:"cache_seconds"`        // how long limits are cached
	Hits      float64 `json:"hit_ratio"`            // of that cache; negative: derived from the other figures
	Poll      float64 `json:"poll_seconds"`         // how often each process looks for changes; 0: never
	Heartbeat bool    `json:"heartbeats,omitempty"` // processes report themselves, for local shares

	Booking      Booking `json:"booking"`
	Windows      string  `json:"windows"`       // types, separated by commas; "": all
	Batch        float64 `json:"batch"`         // maximum records booked at once
	BatchSeconds float64 `json:"batch_seconds"` // maximum wait for a full batch
	Shards       float64 `json:"stream_shards"`
	InvokeMillis float64 `json:"invoke_ms"` // duration of an invocation
	MemoryGB     float64 `json:"memory_gb"`

	StorageGB float64 `json:"storage_gb"` // negative: estimated
	Backup    bool    `json:"backup"`     // point-in-time recovery
	Peak      float64 `json:"peak"`       // of the busiest second over the average; at least 1
	Floor     float64 `json:"floor"`      // least provisioned capacity of the table and of each index
	Target    float64 `json:"target"`     // target utilization of provisioned capacity
}

// Default returns one request a second of one entity, decided by one process, with nothing else.
func Default() Traffic {
	return Traffic{
		Requests: 1, Depth: 2, PerWrite: 1, Entities: 1, Processes: 1, TTL: 60, Hits: -1, Booking: NoBooking,
		Batch:        1000,
		BatchSeconds: 5, Shards: 1, InvokeMillis: 100, MemoryGB: 0.25, StorageGB: -1, Peak: 2, Target: 0.7, Floor: 5,
	}
}

// Check returns an error for a value that is out of range, in terms of the command's flags.
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
		{"groups", t.Groups, 0, 2, ""},
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
		{"floor", t.Floor, 1, 40_000, " units"},
		{"poll", t.Poll, 0, 86_400, " seconds"},
		{"target", t.Target, 0.01, 1, ""},
	} {
		if math.IsNaN(f.v) || f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("--%s must be from %g to %g%s, not %g", f.name, f.lo, f.hi, f.unit, f.v)
		}
	}
	if _, err := store.ParseWindows(t.Windows); err != nil {
		return fmt.Errorf("--windows: %w", err)
	}
	switch t.Booking {
	case NoBooking, Function, Process:
		return nil
	}
	return fmt.Errorf("--usage must be off, function or process: %q", t.Booking)
}

// windows returns the types of windows that are booked.
func (t *Traffic) windows() []store.Window {
	if windows, err := store.ParseWindows(t.Windows); err == nil && windows != nil {
		return windows
	}
	return store.Windows
}

// charged returns how many buckets a request is charged to.
func (t *Traffic) charged() float64 { return t.levels() * (1 + t.Groups) }

// levels returns how many entities a request is charged to.
func (t *Traffic) levels() float64 { return 1 + t.Cascade*float64(t.Depth-1) }

// buckets returns the number of buckets that are written.
func (t *Traffic) buckets() float64 { return max(t.Buckets, t.Entities) }

// hits returns the share of look-ups that the cache answers. A process caches an entity for TTL after a look-up; the
// entity's next request after that, which comes 1/rate later on average, is a miss.
func (t *Traffic) hits() float64 {
	if t.Hits >= 0 {
		return t.Hits
	}
	perPair := t.Requests / (t.Entities * t.Processes)
	return perPair * t.TTL / (1 + perPair*t.TTL)
}
