package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/live"
)

// reading is what is live of a namespace.
type reading struct {
	*live.Records
	missing bool           // the namespace does not exist
	managed []Key          // all that the manifest manages, and perhaps others
	last    admin.Revision // of the manifest; zero if it was never applied
	rollout json.RawMessage
}

// read reads the live records that a manifest declares or manages, with what decides about them, or whole namespaces.
// It writes nothing. A namespace that does not exist is empty.
func read(ctx context.Context, lim *weir.Limiter, m *Manifest, whole bool) (*reading, error) {
	recs := live.New(lim)
	lv := &reading{Records: recs}
	ns, err := admin.New(lim).Namespaces.Get(ctx, lim.Namespace())
	switch {
	case errors.Is(err, weir.ErrNotFound):
		lv.missing = true
		recs.None()
		return lv, nil
	case err != nil:
		return nil, err
	case ns.Deleted != nil:
		return nil, fmt.Errorf("namespace %q was deleted: recover it, or purge it: %w", ns.Name, weir.ErrConflict)
	}
	state, err := admin.New(lim).Manifests.State(ctx, m.Name)
	if err != nil {
		return nil, err
	}
	lv.last, lv.rollout = state.Last, state.Rollout
	ids := slices.Clone(state.Managed)
	for k := range m.Records {
		ids = append(ids, admin.RecordID(k))
	}
	if whole || state.Managed == nil {
		recs.All(ctx)
	}
	recs.Load(ctx, live.With(ids)...)
	lv.managed = lv.managedBy(m.Name)
	if len(state.Managed) == 0 && len(lv.managed) > 0 { // by an earlier weir, which listed nothing
		recs.All(ctx)
		lv.managed = lv.managedBy(m.Name)
	}
	for _, k := range lv.managed {
		ids = append(ids, admin.RecordID(k))
	}
	recs.LoadAround(ctx, ids, m.entity)
	return lv, recs.Err()
}

// entity returns an entity as it is declared; nil if it is not.
func (m *Manifest) entity(id string) *admin.Entity {
	if r := m.Records[entityKey(id)]; r != nil {
		return r.Entity
	}
	return nil
}

// managedBy returns what a manifest manages among the records that were read.
func (lv *reading) managedBy(name string) (keys []Key) {
	for id, d := range lv.Known() {
		if by := d.Managed(); by != nil && by.Manifest == name {
			keys = append(keys, Key(id))
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}

// Export returns the live records of the limiter's namespace as a manifest of that name: those that it manages, and
// those that no manifest does. elsewhere counts the records of other manifests, which are left out.
func Export(ctx context.Context, lim *weir.Limiter, name string) (m *Manifest, elsewhere int, err error) {
	m = &Manifest{Namespace: lim.Namespace(), Name: name, Records: make(map[Key]*Record)}
	lv, err := read(ctx, lim, m, true)
	now := time.Now()
	if err != nil {
		return nil, 0, err
	}
	if lv.missing {
		return nil, 0, fmt.Errorf("namespace %q: %w", lim.Namespace(), weir.ErrNotFound)
	}
	for id, r := range lv.Known() {
		switch r, by := live.Lasting(r, now), r.Managed(); {
		case by != nil && by.Manifest != name:
			elsewhere++
		case r.Entity != nil && r.Entity.Created.IsZero(), live.Blank(&r):
		default:
			m.Records[Key(id)] = &Record{Declared: r}
		}
	}
	return m, elsewhere, nil
}
