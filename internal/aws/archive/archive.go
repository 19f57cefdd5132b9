// Package archive keeps audit events after they expire from the table, as gzipped lines of JSON in a bucket or a
// directory, partitioned by namespace and by the day of each event. docs/aws/lambda.md is the manual.
//
// An object is named after its content, so archiving the same events again overwrites the same object. If a batch is
// redelivered with other boundaries, an event may be in two objects; [Read] recognizes it by its namespace and ID,
// and returns it once.
package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

// Event is one line of the archive.
type Event struct {
	Namespace string `json:"namespace"` // the opaque ID; "_" for events about namespaces and secrets
	admin.AuditEvent
}

// Putter is a place where objects are written.
type Putter interface {
	// Put writes an object, overwriting any of that name.
	Put(ctx context.Context, name string, content []byte) error
}

// Bucket is an archive that can be read.
type Bucket interface {
	Putter
	// List returns the names of all objects that begin with prefix, in any order.
	List(ctx context.Context, prefix string) ([]string, error)
	// Get returns an object.
	Get(ctx context.Context, name string) ([]byte, error)
}

// FromRecord returns the event held by a record of [store.KindAudit].
func FromRecord(k store.Key, value []byte) (Event, error) {
	e := Event{Namespace: k.Namespace}
	if err := json.Unmarshal(value, &e.AuditEvent); err != nil {
		return e, fmt.Errorf("audit event %s is unreadable: %w", k, err)
	}
	if e.At.IsZero() {
		return e, fmt.Errorf("audit event %s has no time", k)
	}
	e.ID, e.Subject, e.At = k.ID, k.Sub, e.At.UTC()
	return e, nil
}

// root is the prefix of all names.
const root = "audit/"

const suffix = ".jsonl.gz"

var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F", "\\", "%5C")
	unescaper = strings.NewReplacer("%2F", "/", "%5C", "\\", "%25", "%")
)

// day returns the name prefix of a namespace's events of one day.
func day(namespace string, at time.Time) string {
	return root + "namespace=" + escaper.Replace(namespace) + "/dt=" + at.UTC().Format(time.DateOnly) + "/"
}

// Write writes events, one object for each namespace and day. If some objects fail, the others are still written; the
// events of the failed objects are returned with the error.
func Write(ctx context.Context, to Putter, events []Event) (failed []Event, err error) {
	slices.SortFunc(events, func(a, b Event) int {
		return strings.Compare(day(a.Namespace, a.At)+a.ID, day(b.Namespace, b.At)+b.ID)
	})
	for len(events) > 0 {
		part := day(events[0].Namespace, events[0].At)
		n := slices.IndexFunc(events, func(e Event) bool { return day(e.Namespace, e.At) != part })
		if n < 0 {
			n = len(events)
		}
		if e := put(ctx, to, part, events[:n]); e != nil {
			failed, err = append(failed, events[:n]...), e
		}
		events = events[n:]
	}
	return failed, err
}

// put writes an object with events of one day.
func put(ctx context.Context, to Putter, part string, events []Event) error {
	var lines, packed bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for i := range events {
		if i > 0 && events[i].ID == events[i-1].ID {
			continue // the batch holds this event twice
		}
		if err := enc.Encode(events[i]); err != nil {
			return fmt.Errorf("archive audit event %s: %w", events[i].ID, err)
		}
	}
	sum := sha256.Sum256(lines.Bytes())
	zw := gzip.NewWriter(&packed)
	if _, err := zw.Write(lines.Bytes()); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := zw.Close(); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	name := part + hex.EncodeToString(sum[:16]) + suffix
	if err := to.Put(ctx, name, packed.Bytes()); err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	return nil
}
