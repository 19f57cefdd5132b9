package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// live holds the records of a namespace that a manifest could declare.
type live struct {
	missing bool // the namespace does not exist
	records map[Key]admin.Declared
	last    admin.Revision // of the manifest; zero if it was never applied
	rollout json.RawMessage
}

// read reads all records of a namespace, a page at a time, and writes nothing. A namespace that does not exist is
// empty.
func read(ctx context.Context, lim *weir.Limiter, manifest string) (*live, error) {
	lv := &live{records: make(map[Key]admin.Declared)}
	ns, err := admin.New(lim).Namespaces.Get(ctx, lim.Namespace())
	switch {
	case errors.Is(err, weir.ErrNotFound):
		lv.missing = true
		return lv, nil
	case err != nil:
		return nil, err
	case ns.Deleted != nil:
		return nil, fmt.Errorf("namespace %q was deleted: recover it, or purge it: %w", ns.Name, weir.ErrConflict)
	}
	q := admin.DeclaredQuery{Max: 1000}
	for {
		page, err := admin.New(lim).Manifests.Declarable(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Items {
			lv.records[keyOf(&r)] = r
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if manifest == "" {
		return lv, nil
	}
	lv.last, lv.rollout, err = admin.New(lim).Manifests.Last(ctx, manifest)
	return lv, err
}

// Export returns the live records of the limiter's namespace as a manifest of that name: those that it manages, and
// those that no manifest does. elsewhere counts the records of other manifests, which are left out.
func Export(ctx context.Context, lim *weir.Limiter, name string) (m *Manifest, elsewhere int, err error) {
	lv, err := read(ctx, lim, "")
	now := time.Now()
	if err != nil {
		return nil, 0, err
	}
	if lv.missing {
		return nil, 0, fmt.Errorf("namespace %q: %w", lim.Namespace(), weir.ErrNotFound)
	}
	m = &Manifest{Namespace: lim.Namespace(), Name: name, Records: make(map[Key]*Record)}
	for k, r := range lv.records {
		switch r, by := lasting(r, now), r.Managed(); {
		case by != nil && by.Manifest != name:
			elsewhere++
		case r.Entity != nil && r.Entity.Created.IsZero(), blank(&r):
		default:
			m.Records[k] = &Record{Declared: r}
		}
	}
	return m, elsewhere, nil
}
