package weir

import (
	"time"

	"github.com/weirlimits/weir/internal/meter"
)

// NearLimitEvent reports that an entity has used much of a limit, or that the limit refused it.
//
// An event is sent once per window, and only again in a later window after usage was below the threshold, as far as
// this process has seen. The same event has the same ID in every process, so a receiver can recognize repetitions from
// a fleet.
type NearLimitEvent struct {
	ID                          string // 32 hexadecimal digits
	Namespace, Entity, Resource string // of the limit: the entity may be a parent of the one in the request
	Limit                       string
	Override                    bool // the limit came with the request
	Shadow                      bool // the limit does not refuse this entity; see [Enforce]
	Kind                        NearLimitKind
	// Percent is the threshold that was reached; for a refusal, the used percentage of the burst, rounded down.
	Percent int
	Used    int64 // tokens used of the burst, rounded up; more than Of in debt
	Of      int64 // the burst in tokens
	// WindowStart and WindowLength are the window in which the event is sent once: for a threshold the limit's period,
	// at least a minute; for a refusal an hour. Windows are aligned to 2024-01-01T00:00:00Z, so to minutes, hours and
	// days in UTC.
	WindowStart  time.Time
	WindowLength time.Duration
	At           time.Time // the store's time
}

// NearLimitKind is the kind of a [NearLimitEvent].
type NearLimitKind string

// The kinds of NearLimitEvent.
const (
	NearThreshold NearLimitKind = meter.Threshold // usage of the burst has reached a threshold
	NearRefused   NearLimitKind = meter.Refusal   // the first refusal in an hour
)
