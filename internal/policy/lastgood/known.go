// Package lastgood keeps the configuration last known to be good, in memory and in a file: what decisions use while the
// store does not answer, even in a process that starts then.
package lastgood

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// MaxRecords is how many records of the last known configuration a file holds. If a namespace does not fit, only its
// system and resource limits are kept, and none of its entities.
const MaxRecords = 50_000

// Known is the configuration last known to be good. It is safe for concurrent use.
type Known struct {
	path string
	of   string // the name of the store
	max  int

	mu     sync.Mutex
	at     time.Time // when it was last known to be current
	spaces map[string]*known
	dirty  bool // it differs from the file

	instances int // 0: not known
}

// known is a namespace as last read.
type known struct {
	epoch   uint64
	whole   bool                       // records not in the map do not exist
	settled bool                       // read twice at this epoch, because an index may lag behind its table
	records map[store.Key]store.Record // including unreadable ones, so that their owners do not count as unknown
}

// Kinds are the kinds of records that decisions use, the least numerous first.
var Kinds = []store.Kind{
	store.KindSystem, store.KindPlanLimits, store.KindResourceLimits, store.KindEntity, store.KindEntityLimits,
}

// At returns when the configuration was last known to be current; the zero time if nothing is known.
func (k *Known) At() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

// Instances returns how many processes shared the limits when that was last known; 0 if it is not.
func (k *Known) Instances() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.instances
}

// SetInstances takes in how many processes share the limits.
func (k *Known) SetInstances(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dirty = k.dirty || k.instances != n
	k.instances = n
}

// LastGood returns records as last known, with their namespace's epoch; false if some are not known. It is for
// [policy.Resolver.Use].
func (k *Known) LastGood(keys []store.Key) (got store.Got, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		sp := k.spaces[key.Namespace]
		if sp == nil {
			return store.Got{}, false
		}
		r, ok := sp.records[key]
		if !ok && !sp.whole && (key.Kind == store.KindEntity || key.Kind == store.KindEntityLimits) {
			return store.Got{}, false
		}
		r.Key = key
		got.Records, got.Epoch = append(got.Records, r), sp.epoch
	}
	return got, true
}

// Update rereads the namespaces that have changed since they were last read, and reports records that cannot be used.
// Of those it keeps the last good version or, if there is none, the record as it is. It covers the registered
// namespaces and those in more.
func (k *Known) Update(ctx context.Context, st store.Store, more []string, bad func(error)) error {
	at := time.Now()
	ids := append([]string{store.Registry, record.DefaultNamespace}, more...)
	if err := k.update(ctx, st, store.Registry, bad); err != nil {
		return err
	}
	ids = append(ids, k.registered()...)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for _, id := range ids {
		if id == store.Registry {
			continue
		}
		if err := k.update(ctx, st, id, bad); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.spaces {
		if _, there := slices.BinarySearch(ids, id); !there {
			delete(k.spaces, id)
		}
	}
	k.at, k.dirty = at, true
	return nil
}

// registered returns the ids of the namespaces in the registry.
func (k *Known) registered() (ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.spaces[store.Registry].records {
		var ns struct {
			ID      string     `json:"id"`
			Deleted *time.Time `json:"deleted"`
		}
		if json.Unmarshal(r.Value, &ns) == nil && ns.Deleted == nil && ns.ID != "" {
			ids = append(ids, ns.ID)
		}
	}
	return ids
}

// update rereads a namespace unless it is unchanged.
func (k *Known) update(ctx context.Context, st store.Store, id string, bad func(error)) error {
	epochs, err := Epochs(ctx, st, id)
	if err != nil {
		return err
	}
	epoch := epochs[0]
	k.mu.Lock()
	old := k.spaces[id]
	room := k.max
	for other, sp := range k.spaces {
		if other != id {
			room -= len(sp.records)
		}
	}
	k.mu.Unlock()
	if old != nil && old.epoch == epoch && old.settled {
		return nil
	}
	sp := &known{
		epoch: epoch, whole: true, settled: old != nil && old.epoch == epoch, records: make(map[store.Key]store.Record),
	}
	of := Kinds
	if id == store.Registry {
		of = []store.Kind{store.KindNamespace}
	}
	for _, kind := range of {
		fits, err := sp.list(ctx, st, store.Query{Namespace: id, Kind: kind}, old, room, bad)
		if err != nil {
			return err
		}
		if !fits { // entities come last: some of them prove nothing about the others
			sp.whole = false
			for key := range sp.records {
				if key.Kind == store.KindEntity || key.Kind == store.KindEntityLimits {
					delete(sp.records, key)
				}
			}
			break
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spaces[id] = sp
	return nil
}

// list adds the records of a kind, unless there are too many.
func (sp *known) list(
	ctx context.Context, st store.Store, q store.Query, old *known, room int, bad func(error),
) (fits bool, err error) {
	for r, err := range store.All(ctx, st, q) {
		if err != nil {
			return false, err
		}
		key := r.Key
		if err := policy.Check(r); err != nil {
			bad(err)
			if old != nil {
				if was, ok := old.records[key]; ok && policy.Check(was) == nil {
					r = was
				}
			}
		}
		if len(sp.records) >= room {
			return false, nil
		}
		sp.records[key] = r
	}
	return true, nil
}

// Epochs returns the epochs of namespaces, even from a store that has no cheaper way to read them. An epoch is no newer
// than anything read afterwards.
func Epochs(ctx context.Context, st store.Store, ids ...string) ([]uint64, error) {
	if s, ok := st.(store.Epochs); ok {
		return s.Epochs(ctx, ids...)
	}
	ns := make([]uint64, len(ids))
	for i, id := range ids {
		got, err := st.Get(ctx, store.Key{Namespace: id, Kind: store.KindSystem})
		if err != nil {
			return nil, err
		}
		ns[i] = got.Epoch
	}
	return ns, nil
}
