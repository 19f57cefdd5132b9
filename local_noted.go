package weir

import (
	"cmp"
	"errors"
	"slices"

	"github.com/weirlimits/weir/store"
)

// Changes made through this process count in an outage that begins before they are read back: views are noted from the
// writes themselves. While the store answers, decisions do not use these views, because their epoch is not known.

// doubt is what is not known about a view, because a change of it may or may not have been made. The view is then the
// stricter of both versions.
type doubt struct {
	limits bool   // it may have no limits
	others bool   // it may have other limits
	policy bool   // it may have no on_unavailable
	parent string // a second parent that may be charged
}

// follow updates what this process knows to match the writes. After an error that leaves it open whether they were
// made, it notes the stricter of both versions.
func (c *core) follow(writes []store.Write, err error) {
	keys := make([]store.Key, 0, len(writes))
	for i := range writes {
		if !writes[i].Check {
			keys = append(keys, writes[i].Record.Key)
		}
	}
	system := make(map[string]view)
	untouched := errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrInvalid) // and what is known may be old
	for i := range writes {
		if untouched {
			break
		}
		k, ok := viewOf(writes[i].Record.Key)
		if !ok || writes[i].Check {
			continue
		}
		c.views.Note(k, func(now view, known bool) (v view, ok bool) {
			v, ok = k.written(&writes[i], now, known, err != nil)
			if k.kind == systemView {
				system[k.space] = v
			}
			return v, ok
		})
	}
	c.outdated(keys)
	for id, v := range system {
		if s := c.known(id); s != nil {
			u := v.onUnavailable
			if v.doubt.policy {
				u = stricter(u, c.cfg.OnUnavailable)
			}
			if was := s.unavailable.Load(); err != nil && was != nil { // the record itself is possibly not cached
				u = stricter(cmp.Or(u, c.cfg.OnUnavailable), cmp.Or(*was, c.cfg.OnUnavailable))
			}
			s.unavailable.Store(&u)
		}
	}
}

// written returns the view of a record that was written, or in doubt may have been; false if nothing is known of it, as
// before.
func (k viewKey) written(w *store.Write, now view, known, inDoubt bool) (view, bool) {
	r := w.Record
	if r.Version++; w.Delete {
		r.Version = 0
	}
	v, _ := k.decode(r)
	v.noted = true
	if v.version = r.Version; w.Delete {
		v.version = w.Record.Version + 1
	}
	switch newer := now.version > w.Record.Version && (now.exists || w.Record.Version > 0); { // newer than the version that this write is based on
	case w.Delete && !known:
		return view{}, false
	case known && (inDoubt || newer):
		return now.or(&v, k.kind), true
	case inDoubt:
		return (&view{}).or(&v, k.kind), true
	}
	return v, true
}

// offer notes a record that was read in order to change it, if it is newer than what is known.
func (c *core) offer(r store.Record) {
	k, ok := viewOf(r.Key)
	if !ok {
		return
	}
	if vs, known := c.views.Known([]viewKey{k}); known && vs[0].version >= r.Version {
		return
	}
	c.views.Note(k, func(now view, known bool) (view, bool) {
		if known && now.version >= r.Version {
			return now, true
		}
		v, _ := k.decode(r)
		v.noted = true
		return v, true
	})
}

// or returns the view to use while it is not known which of two versions of a record is true.
func (v view) or(o *view, kind viewKind) view {
	both := *o
	both.version, both.noted, both.unreadable = v.version, true, v.unreadable || o.unreadable
	switch kind {
	case entityView:
		both.entity, both.doubt.parent = v.orParent(o)
	case namespaceView:
		if !v.exists || v.namespace.Deleted != nil {
			both.exists, both.namespace = v.exists, v.namespace
		}
	default:
		both.exists = v.exists || o.exists
		both.onUnavailable = stricter(v.onUnavailable, o.onUnavailable)
		both.doubt.policy = v.doubt.policy || o.doubt.policy || (v.onUnavailable == OnUnavailableDefault) != (o.onUnavailable == OnUnavailableDefault)
		strict := v.stricter(o)
		both.limits, both.enforce, both.former, both.one = strict.limits, strict.enforce, strict.former, strict.one
		both.source = strict.source
		both.doubt.others = v.doubt.others || o.doubt.others || !v.sameLimits(o)
		both.doubt.limits = v.doubt.limits || o.doubt.limits || (len(v.limits) == 0) != (len(o.limits) == 0)
	}
	return both
}

// orParent returns an entity with the parent that both versions or either of them charge, and the other parent, if any.
func (v *view) orParent(o *view) (e entityRecord, other string) {
	charged := func(v *view) string {
		if v.entity.Cascade {
			return v.entity.Parent
		}
		return ""
	}
	e = o.entity
	all := []string{charged(o), charged(v), o.doubt.parent, v.doubt.parent}
	all = slices.DeleteFunc(all, func(id string) bool { return id == "" })
	if len(all) == 0 {
		return e, ""
	}
	e.Parent, e.Cascade = all[0], true
	if i := slices.IndexFunc(all, func(id string) bool { return id != all[0] }); i > 0 {
		other = all[i] // after two changes in doubt there may be three parents; one is then not charged
	}
	return e, other
}

// stricter returns a view with the limits of both; for a limit that both have, the stricter version.
func (v *view) stricter(o *view) *view {
	switch {
	case len(v.limits) == 0:
		return o
	case len(o.limits) == 0, v.sameLimits(o):
		return v
	}
	both := *v
	both.limits, both.enforce, both.former = slices.Clone(v.limits), make([]Enforce, len(v.limits)), nil // nil, because former rates are more lenient
	for i := range both.limits {
		both.enforce[i] = v.enforced(i)
	}
	for j := range o.limits {
		l := &o.limits[j]
		i := slices.IndexFunc(both.limits, func(have store.Limit) bool { return have.Name == l.Name })
		if i < 0 && len(both.limits) == maxLimits {
			continue
		}
		if i < 0 {
			both.limits, both.enforce = append(both.limits, *l), append(both.enforce, o.enforced(j))
			continue
		}
		have := &both.limits[i]
		burst := min(have.Burst, l.Burst)
		if float64(l.Amount)*float64(have.Period) < float64(have.Amount)*float64(l.Period) {
			have.Amount, have.Period = l.Amount, l.Period
		}
		have.Burst = burst
		if both.enforce[i] != o.enforced(j) {
			both.enforce[i] = EnforceOn
		}
	}
	both.one = oneCharge(both.limits)
	return &both
}

func (v *view) sameLimits(o *view) bool {
	return slices.Equal(v.limits, o.limits) && slices.Equal(v.enforce, o.enforce) && slices.Equal(v.former, o.former)
}

// enforced returns the Enforce of a limit. For a percentage with a former rate, it is not known which entity has which
// rate.
func (v *view) enforced(i int) Enforce {
	switch {
	case v.enforce == nil, len(v.former) > 0 && v.former[i].Name != "":
		return EnforceOn
	}
	return v.enforce[i]
}
