package cells

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/internal/fleet/catalog"
	"github.com/weirlimits/weir/store"
)

// Registry is the catalog in which cells meet, in a store that all of them can reach.
type Registry struct{ Catalog store.Catalog }

// records returns the records of the fleet that the agents of all cells form.
func (r Registry) records() fleet.Registry {
	return catalog.Registry{Catalog: r.Catalog, Key: recordKey, Lasting: true}
}

// Errors of the registry's methods, besides those of the store.
var (
	ErrExists   = errors.New("is already a cell")
	ErrNotFound = errors.New("is not a cell: add it with weir cell join")
	ErrHolds    = errors.New("may still be using its share")
)

// tries is how often a conflicting change is tried.
const tries = 5

// Join makes name a cell. It has no share before one of its agents beats. Errors: [ErrExists], an invalid name, store
// errors.
func (r Registry) Join(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	rec := cellRecord{Birth: strings.ToLower(rand.Text()[:12]), Joined: time.Now().UTC().Truncate(time.Second)}
	err := r.Catalog.Commit(ctx, write(cellKey(name), 0, rec))
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("cell %q %w", name, ErrExists)
	}
	return err
}

// Drain takes a cell's share away or, with back, gives it one again. Stop sending requests to the cell first. Errors:
// [ErrNotFound], store errors.
func (r Registry) Drain(ctx context.Context, name string, back bool) error {
	return r.change(ctx, name, func(rec store.Record, c *cellRecord) store.Write {
		c.Draining = !back
		return write(rec.Key, rec.Version, c)
	})
}

// Remove ends a cell's membership. A cell in which a share may still be in use is refused, unless force is set: force
// asserts that none of its deciders runs any more. Errors: [ErrNotFound], [ErrHolds], store errors.
func (r Registry) Remove(ctx context.Context, name string, force bool) error {
	if !force {
		v, err := r.Inspect(ctx)
		if err != nil {
			return err
		}
		for _, c := range v.Cells {
			if c.Name == name && (c.InForce() > 0 || !c.Draining) {
				return fmt.Errorf("cell %q %w: drain it, and wait for its share to be 0", name, ErrHolds)
			}
		}
	}
	if err := r.change(ctx, name, func(rec store.Record, _ *cellRecord) store.Write {
		return store.Write{Record: rec, Delete: true}
	}); err != nil {
		return err
	}
	instances, err := r.list(ctx, space+"."+name, kindInstance)
	if err != nil {
		return err
	}
	for _, rec := range instances {
		if err := r.Catalog.Commit(ctx, store.Write{Record: rec, Delete: true}); err != nil &&
			!errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}

// change changes the record of a cell.
func (r Registry) change(ctx context.Context, name string, f func(store.Record, *cellRecord) store.Write) error {
	return update(ctx, r.Catalog, cellKey(name), func(version uint64, c *cellRecord) (store.Write, error) {
		if version == 0 {
			return store.Write{}, fmt.Errorf("cell %q %w", name, ErrNotFound)
		}
		return f(store.Record{Key: cellKey(name), Version: version}, c), nil
	})
}

// update writes what f makes of a record, if it is still as read.
func update[T any](
	ctx context.Context, c store.Catalog, k store.Key, f func(version uint64, v *T) (store.Write, error),
) error {
	for try := 1; ; try++ {
		v, version, err := read[T](ctx, c, k)
		if err != nil {
			return err
		}
		w, err := f(version, v)
		if err != nil {
			return err
		}
		if err = c.Commit(ctx, w); !errors.Is(err, store.ErrConflict) || try == tries {
			return err
		}
	}
}

// Set changes the settings. Errors: those of [Settings.Check], store errors.
func (r Registry) Set(ctx context.Context, f func(*Settings)) error {
	return update(ctx, r.Catalog, settingsKey, func(version uint64, s *Settings) (store.Write, error) {
		f(s)
		return write(settingsKey, version, s), s.WithDefaults().Check()
	})
}

// View is the state of a registry according to its records.
type View struct {
	Leader   string // "": nobody leads
	Version  Version
	Settings Settings
	Cells    []CellView       // by name
	Over     map[string]int64 // by namespace; see Admitted
	Differ   []string         // namespaces of which two cells go by different limits
}

// CellView is the state of one cell. Shares are parts of [Whole].
type CellView struct {
	Name      string
	Joined    time.Time
	Draining  bool
	Missing   bool              // it has not reported for an expiry
	Others    int               // processes of other installations that use its name and have no share
	Instances map[string]uint64 // seq by id, of those that are not known to have died
	Shares    Shares            // as last granted
	Held      Shares            // the largest that may be in use, if more than Shares
	Version   Version           // of Shares
	Offered   map[string]int64  // thousandths of a request per second
}

// InForce returns the largest share that may be in use in the cell, of any namespace.
func (c *CellView) InForce() (most int64) {
	for _, s := range []Shares{c.Shares, c.Held} {
		for _, n := range s {
			most = max(most, n)
		}
	}
	return most
}

// Fraction returns a share as a fraction of 1.
func Fraction(share int64) float64 { return float64(share) / float64(Whole) }

// Ratio returns how much of a namespace's limits all cells together may be admitting: 1 is the limit. It is 0 if no
// cell has a share.
func (v *View) Ratio(namespace string) float64 {
	var sum int64
	for i := range v.Cells {
		sum += max(v.Cells[i].Shares.Of(namespace), v.Cells[i].Held.Of(namespace))
	}
	return Fraction(sum)
}

// Admitted returns how much of a limit of the namespace all cells together have admitted recently, according to their
// reports, for the bucket with the most: 1 is the limit, or less.
func (v *View) Admitted(namespace string) float64 {
	return max(1, float64(v.Over[namespace])/1000)
}

// Namespaces returns [Default], then the namespaces that have shares of their own or have admitted more than their
// limits.
func (v *View) Namespaces() []string {
	found := map[string]bool{}
	for namespace := range v.Over {
		found[namespace] = true
	}
	for _, c := range v.Cells {
		for namespace := range c.Shares {
			found[namespace] = true
		}
	}
	delete(found, Default)
	return append([]string{Default}, slices.Sorted(maps.Keys(found))...)
}

// Inspect reads the registry's current state. It writes nothing.
func (r Registry) Inspect(ctx context.Context) (View, error) {
	cells, err := r.cells(ctx)
	if err != nil {
		return View{}, err
	}
	rec, err := r.records().Get(ctx, fleet.GrantsName)
	if err != nil {
		return View{}, err
	}
	g := new(grants)
	if err := fleet.DecodeGrants(rec, g); err != nil {
		return View{}, err
	}
	s, _, err := read[Settings](ctx, r.Catalog, settingsKey)
	if err != nil {
		return View{}, err
	}
	v := View{Leader: g.Leader, Version: g.Version, Settings: s.WithDefaults(), Over: g.Over, Differ: g.Differ}
	for _, name := range slices.Sorted(maps.Keys(cells)) {
		v.Cells = append(v.Cells, viewOf(name, cells[name], g.Cells[name]))
	}
	return v, nil
}

func viewOf(name string, c seen, granted *cell) CellView {
	cv := CellView{
		Name: name, Joined: c.Joined, Draining: c.Draining, Missing: true, Instances: make(map[string]uint64),
		Offered: make(map[string]int64),
	}
	for id, i := range c.instances {
		if i.dead(time.Now()) {
			continue
		}
		if i.Birth != c.Birth || granted != nil && granted.Store != "" && i.Store != "" && i.Store != granted.Store {
			continue
		}
		cv.Instances[id] = i.Seq
		for namespace, n := range i.Offered {
			cv.Offered[namespace] += n
		}
	}
	if granted != nil && granted.Birth == c.Birth {
		cv.Shares, cv.Held, cv.Version = granted.Shares, granted.Held, granted.Version
		cv.Missing, cv.Others = granted.Missing, granted.Others
	}
	return cv
}

// cells reads all cells with their instances.
func (r Registry) cells(ctx context.Context) (map[string]seen, error) {
	recs, err := r.list(ctx, space, kindCell)
	if err != nil {
		return nil, err
	}
	cells := make(map[string]seen, len(recs))
	for _, rec := range recs {
		c, err := decode[cellRecord](rec)
		if err != nil {
			return nil, err
		}
		s := seen{*c, make(map[string]instanceRecord)}
		instances, err := r.list(ctx, space+"."+rec.Key.ID, kindInstance)
		if err != nil {
			return nil, err
		}
		for _, in := range instances {
			i, err := decode[instanceRecord](in)
			if err != nil {
				return nil, err
			}
			i.written = catalog.Written(in)
			s.instances[in.Key.ID] = *i
		}
		cells[rec.Key.ID] = s
	}
	return cells, nil
}

func (r Registry) list(ctx context.Context, namespace string, kind store.Kind) ([]store.Record, error) {
	var found []store.Record
	for rec, err := range store.All(ctx, r.Catalog, store.Query{Namespace: namespace, Kind: kind}) {
		if err != nil {
			return nil, err
		}
		found = append(found, rec)
	}
	return found, nil
}
