package configflow

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

// MaxRecords is of how many records a file keeps what was last known. Of a namespace for which that is too few it keeps
// the system's and resources' limits, and of its entities nothing.
const MaxRecords = 50_000

// Known is the configuration as it was last known to be good. It is safe for concurrent use.
type Known struct {
	path string
	of   string // the store
	max  int

	mu     sync.Mutex
	at     time.Time // when it was last seen to be current
	spaces map[string]*known
	dirty  bool // it is not what the file holds
}

// known is a namespace as it was read.
type known struct {
	epoch   uint64
	whole   bool                       // what is not among the records does not exist
	settled bool                       // read twice at this epoch, since an index may follow the table late
	records map[store.Key]store.Record // also those that nobody can read, so that their owners are no strangers
}

// kinds are those by which decisions go, the few first.
var kinds = []store.Kind{store.KindSystem, store.KindResourceLimits, store.KindEntity, store.KindEntityLimits}

// At returns when what is known was last seen to be current; the zero time if nothing is known.
func (k *Known) At() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

// LastGood is what [weir.Config].LastGood asks for.
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

// Update reads the namespaces of which something changed since they were last read, and reports records that cannot be
// used: of those the last good ones are kept, or where there is none the record as it is. Namespaces are those that are registered, and more.
func (k *Known) Update(ctx context.Context, st store.Store, more []string, bad func(error)) error {
	at := time.Now()
	ids := append([]string{store.Registry, weir.DefaultNamespace}, more...)
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

// registered returns the ids of the namespaces that the registry names.
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

// update reads a namespace unless it is as it was.
func (k *Known) update(ctx context.Context, st store.Store, id string, bad func(error)) error {
	epoch, err := epochOf(ctx, st, id)
	if err != nil {
		return err
	}
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
	sp := &known{epoch: epoch, whole: true, settled: old != nil && old.epoch == epoch, records: make(map[store.Key]store.Record)}
	of := kinds
	if id == store.Registry {
		of = []store.Kind{store.KindNamespace}
	}
	for _, kind := range of {
		fits, err := sp.list(ctx, st, store.Query{Namespace: id, Kind: kind, Max: 1000}, old, room, bad)
		if err != nil {
			return err
		}
		if !fits { // entities come last: of some of them nothing could be said of the others
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
func (sp *known) list(ctx context.Context, st store.Store, q store.Query, old *known, room int, bad func(error)) (fits bool, err error) {
	for {
		page, err := st.List(ctx, q)
		if err != nil {
			return false, err
		}
		for _, r := range page.Records {
			key := r.Key
			if err := weir.CheckRecord(r); err != nil {
				bad(err)
				if old != nil {
					if was, ok := old.records[key]; ok && weir.CheckRecord(was) == nil {
						r = was
					}
				}
			}
			if len(sp.records) >= room {
				return false, nil
			}
			sp.records[key] = r
		}
		if q.After = page.Next; q.After == "" {
			return true, nil
		}
	}
}

// epochOf returns a namespace's epoch, which is no newer than what is read from now on.
func epochOf(ctx context.Context, st store.Store, id string) (uint64, error) {
	ns, err := epochsOf(ctx, st, id)
	if err != nil {
		return 0, err
	}
	return ns[0], nil
}

// epochsOf returns the epochs of namespaces, also of a store that has no cheaper way to tell.
func epochsOf(ctx context.Context, st store.Store, ids ...string) ([]uint64, error) {
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
