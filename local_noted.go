package weir

import (
	"github.com/weirlimits/weir/store"
)

// follow updates what this process knows after a commit. Records that were written are the last good ones, should an
// outage begin before they are read back; while the store answers, decisions read them again, because their epoch is not
// known. After an error, what was known stays in use until it is read again.
func (c *core) follow(writes []store.Write, err error) {
	keys := make([]store.Key, 0, len(writes))
	system := make(map[string]OnUnavailable)
	for i := range writes {
		w := &writes[i]
		if w.Check {
			continue
		}
		keys = append(keys, w.Record.Key)
		k, ok := viewOf(w.Record.Key)
		if !ok || err != nil {
			continue
		}
		c.views.Note(k, func(now view, known bool) (view, bool) {
			v, ok := k.written(w, now, known)
			if k.kind == systemView {
				system[k.space] = v.onUnavailable
			}
			return v, ok
		})
	}
	c.outdated(keys)
	for id, u := range system {
		if s := c.known(id); s != nil {
			s.unavailable.Store(&u)
		}
	}
}

// written returns the view of a record that was written; false if nothing is known of it, as before.
func (k viewKey) written(w *store.Write, now view, known bool) (view, bool) {
	r := w.Record
	if r.Version++; w.Delete {
		r.Version = 0
	}
	v, _ := k.decode(r)
	v.noted = true
	if v.version = r.Version; w.Delete {
		v.version = w.Record.Version + 1
	}
	switch {
	case w.Delete && !known:
		return view{}, false
	case known && now.version > v.version && now.exists: // another process has changed it since
		now.noted = true
		return now, true
	}
	return v, true
}
