package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/policy/source"
	"github.com/weirlimits/weir/store"
)

// Commit writes records of a namespace and the audit events of the change in one atomic step. It is the only way in
// which weir writes to the catalog. Decisions of this process follow the change when Commit returns, also after an
// error, because the step may have been made.
//
// The events are chained: each has the hash of the one before in its namespace. So the changes of a namespace that this
// process makes come one after the other, and one that another process makes at the same time costs another try.
//
// Only steps of a longer change come without events: marks, and the sweep of a purge; its end has one. A change of what
// is copied from another store is a [*source.Error].
func (r *Resolver) Commit(
	ctx context.Context, namespaceID string, events []record.Event, writes ...store.Write,
) error {
	if err := source.Check(ctx, r.cfg.Catalog, writes); err != nil {
		return err
	}
	if len(events) == 0 {
		err := r.cfg.Catalog.Commit(ctx, writes...)
		r.follow(writes, err)
		return err
	}
	return r.commit(ctx, namespaceID, events, nil, writes)
}

// Report writes an event unless it is there already, whoever has written it: there asks the store, which shows all
// events of the namespace that the new one would follow.
func (r *Resolver) Report(
	ctx context.Context, namespaceID string, ev record.Event, there func() (bool, error),
) error {
	return r.commit(ctx, namespaceID, []record.Event{ev}, there, nil)
}

func (r *Resolver) commit(
	ctx context.Context, namespaceID string, events []record.Event, there func() (bool, error), writes []store.Write,
) error {
	end, err := r.audit.Turn(ctx, namespaceID)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	defer end()
	var done error
	keys, asked := []store.Key{record.AuditHeadKey(namespaceID)}, writes
	if record.ConcernsMarks(writes) {
		keys = append(keys, record.SystemKey(namespaceID))
	}
	err = retry(ctx, "audit log", chainTries, func() error {
		got, err := r.cfg.Catalog.Get(ctx, keys...)
		if err == nil && len(keys) > 1 {
			system := got.Records[1]
			system.Key = keys[1] // also of a record that does not exist
			writes, err = record.KeepMarks(asked, system)
		}
		if err != nil {
			return err
		}
		if there != nil { // if anybody continues the chain from now on, the commit fails
			if found, err := there(); found || err != nil {
				done = nil // of an earlier try
				return err
			}
		}
		audit, err := r.audit.Writes(ctx, namespaceID, got.Records[0], events)
		if err != nil {
			return err
		}
		done = r.cfg.Catalog.Commit(ctx, slices.Concat(writes, audit)...)
		if conflict, ok := errors.AsType[*store.ConflictError](done); ok && slices.Contains(keys, conflict.Key) &&
			!slices.ContainsFunc(asked, func(w store.Write) bool { return w.Record.Key == conflict.Key }) {
			return done // another process wrote the next event of the chain, or to the system's record first
		}
		return nil
	})
	if err == nil {
		r.follow(writes, done)
		err = done
	}
	return err
}

// atOnce is how many records one commit of RemoveAll removes.
const atOnce = 25

// RemoveAll removes the records of a query, in several commits. event, if not nil, makes the audit event of a removal.
func (r *Resolver) RemoveAll(
	ctx context.Context, q store.Query, event func(store.Record) (record.Event, error),
) error {
	var writes []store.Write
	var events []record.Event
	for rec, err := range store.All(ctx, r.cfg.Catalog, q) {
		if err == nil && len(writes) == atOnce {
			err = r.Commit(ctx, q.Namespace, events, writes...)
			writes, events = nil, nil
		}
		if err == nil && event != nil {
			var ev record.Event
			ev, err = event(rec)
			events = append(events, ev)
		}
		if err != nil {
			return err
		}
		writes = append(writes, record.Remove(rec))
	}
	if len(writes) == 0 {
		return nil
	}
	return r.Commit(ctx, q.Namespace, events, writes...)
}

// chainTries is how often a change is attempted while others change the namespace: enough for a hundred processes.
const chainTries = 100

// follow updates what this process keeps after a commit. Records that were written are the last good ones, should an
// outage begin before they are read back; while the store answers, decisions read them again, because their epoch is
// not known. After an error, what was known stays in use until it is read again.
func (r *Resolver) follow(writes []store.Write, err error) {
	keys := make([]store.Key, 0, len(writes))
	systems := make(map[string]settings) // by namespace
	for i := range writes {
		w := &writes[i]
		if w.Check {
			continue
		}
		k := w.Record.Key
		keys = append(keys, k)
		if !cached(k.Kind) || err != nil {
			continue
		}
		r.records.Note(k, func(now *catalogRecord, known bool) (*catalogRecord, bool) {
			var was catalogRecord
			if known {
				was = *now
			}
			rec, ok := written(w, was, known)
			if k.Kind == store.KindSystem {
				systems[k.Namespace] = rec.settings
			}
			return &rec, ok
		})
	}
	r.Changed(keys...)
	for id, m := range systems {
		if s := r.used(id); s != nil {
			s.system.Store(&m)
		}
	}
}

// written returns a record as it was written; false if nothing is known of it, as before.
func written(w *store.Write, now catalogRecord, known bool) (catalogRecord, bool) {
	r := w.Record
	if r.Version++; w.Delete {
		r.Version = 0
	}
	rec, _ := decode(r.Key, r)
	rec.noted = true
	if rec.version = r.Version; w.Delete {
		rec.version = w.Record.Version + 1
	}
	switch {
	case w.Delete && !known:
		return catalogRecord{}, false
	case known && now.version > rec.version && now.exists: // another process has changed it since
		now.noted = true
		return now, true
	}
	return rec, true
}
