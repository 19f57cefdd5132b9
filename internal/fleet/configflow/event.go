package configflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/weirlimits/weir/store"
)

// Event reports that a record changed.
type Event struct {
	Key store.Key
	// Version increases with each change of the record, even across its deletion: decimal digits, like a stream's
	// sequence numbers. It is not the version of the record's content, so a rollback has a newer one.
	Version string
}

// wire is an event in transit.
type wire struct {
	Format    string     `json:"format"`
	Namespace string     `json:"namespace"`
	Kind      store.Kind `json:"kind"`
	ID        string     `json:"id,omitempty"`
	Sub       string     `json:"sub,omitempty"`
	Version   string     `json:"version"`
}

const eventFormat = "weir-event-1"

// Encode returns the event in its wire format.
func (e Event) Encode() []byte {
	b, err := json.Marshal(wire{eventFormat, e.Key.Namespace, e.Key.Kind, e.Key.ID, e.Key.Sub, e.Version})
	if err != nil {
		panic(err) // strings only: cannot fail
	}
	return b
}

// DecodeEvent decodes an event from its wire format.
func DecodeEvent(b []byte) (Event, error) {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return Event{}, fmt.Errorf("read an event: %w", err)
	}
	e := Event{store.Key{Namespace: w.Namespace, Kind: w.Kind, ID: w.ID, Sub: w.Sub}, w.Version}
	switch {
	case w.Format != eventFormat:
		return Event{}, fmt.Errorf("read an event: format %q is not %s", w.Format, eventFormat)
	case w.Namespace == "" || w.Kind == "" || digits(w.Version) == "":
		return Event{}, fmt.Errorf("read an event: it lacks a record or a version: %.200q", b)
	}
	return e, nil
}

// digits returns a version without leading zeros; "" if it is invalid.
func digits(v string) string {
	if v == "" || len(v) > 64 || strings.Trim(v, "0123456789") != "" {
		return ""
	}
	if v = strings.TrimLeft(v, "0"); v == "" {
		return "0"
	}
	return v
}

// newer reports whether version a is newer than b.
func newer(a, b string) bool {
	a, b = digits(a), digits(b)
	return len(a) > len(b) || len(a) == len(b) && a > b
}

// maxVersions is how many records' versions are remembered. A forgotten record is read once more.
const maxVersions = 100_000

// versions holds the versions of applied events.
type versions struct {
	mu sync.Mutex
	m  map[store.Key]string
}

// old reports whether the event, or a newer one of its record, was applied.
func (v *versions) old(e Event) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, ok := v.m[e.Key]
	return ok && !newer(e.Version, known)
}

func (v *versions) applied(e Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.m[e.Key]; ok && !newer(e.Version, known) {
		return
	}
	if v.m == nil || len(v.m) >= maxVersions {
		v.m = make(map[store.Key]string)
	}
	v.m[e.Key] = e.Version
}
