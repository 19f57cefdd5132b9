package policy

import (
	"context"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Commit writes records of a namespace and the audit events of the change in one atomic step. It is the only way in
// which weir writes to the catalog. Decisions of this process follow the change when Commit returns, also after an
// error, because the step may have been made.
//
// Only the steps of a longer change come without events: marks, and the sweep of a purge. The end of the change has
// one.
func (r *Resolver) Commit(
	ctx context.Context, namespaceID string, events []record.Event, writes ...store.Write,
) error {
	for i := range events {
		writes = append(writes, r.audit.write(ctx, namespaceID, &events[i]))
	}
	err := r.cfg.Catalog.Commit(ctx, writes...)
	r.follow(writes, err)
	return err
}

// follow updates what this process keeps after a commit. Records that were written are the last good ones, should an
// outage begin before they are read back; while the store answers, decisions read them again, because their epoch is
// not known. After an error, what was known stays in use until it is read again.
func (r *Resolver) follow(writes []store.Write, err error) {
	keys := make([]store.Key, 0, len(writes))
	modes := make(map[string]Mode) // of the system's records, by namespace
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
		r.records.Note(k, func(now catalogRecord, known bool) (catalogRecord, bool) {
			rec, ok := written(w, now, known)
			if k.Kind == store.KindSystem {
				modes[k.Namespace] = rec.onUnavailable
			}
			return rec, ok
		})
	}
	r.Changed(keys...)
	for id, m := range modes {
		if s := r.used(id); s != nil {
			s.onUnavailable.Store(&m)
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
