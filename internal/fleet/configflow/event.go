package configflow

import (
	"encoding/json"
	"fmt"
	"strings"

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
	case w.Namespace == "" || w.Kind == "" || !valid(w.Version):
		return Event{}, fmt.Errorf("read an event: it lacks a record or a version: %.200q", b)
	}
	return e, nil
}

// valid reports whether a version consists of digits, and not of too many.
func valid(v string) bool { return v != "" && len(v) <= 64 && strings.Trim(v, "0123456789") == "" }
