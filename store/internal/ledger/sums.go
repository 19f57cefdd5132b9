package ledger

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
)

// fill adds the changes of as many entries to sums as there is room for, but at least of one. It returns their number.
func fill[T any](sums Sums, entries []*Entry[T], chains map[store.Key][]string, room int) int {
	accounts := 0
	for i, e := range entries {
		if e.stored {
			accounts++
		}
		chain := chains[entityOf(e.Bucket)]
		if i > 0 && accounts+len(sums)+len(e.deltas)*(4+len(chain)) > room { // it may still fit if windows coincide
			fresh := make(map[Window]bool)
			each(e.Bucket, chain, e.deltas, func(w Window, _ *Delta) {
				if _, ok := sums[w]; !ok {
					fresh[w] = true
				}
			})
			if accounts+len(sums)+len(fresh) > room {
				return i
			}
		}
		each(e.Bucket, chain, e.deltas, func(w Window, d *Delta) {
			sums[w] = add(sums[w], d.Limit, d.Figure, d.Amount)
		})
	}
	return len(entries)
}

// each calls f for each change and each window that it belongs to: those of the bucket, and of everything that the
// bucket belongs to. Peaks are those of single buckets. What is charged to a group or the total is charged to the
// resource, too, and not counted again in the sums over resources.
func each(b store.Bucket, chain []string, deltas []Delta, f func(Window, *Delta)) {
	for i := range deltas {
		d := &deltas[i]
		f(Window{store.OfBucket, b.Namespace, b.Entity, b.Resource, d.Window, d.Start}, d)
		if d.Figure == Peak {
			continue
		}
		f(Window{store.OfResource, b.Namespace, b.Resource, "", d.Window, d.Start}, d)
		if !store.Aggregate(b.Resource) {
			f(Window{store.OfNamespace, b.Namespace, "", "", d.Window, d.Start}, d)
			f(Window{store.OfStore, store.Registry, "", "", d.Window, d.Start}, d)
		}
		for _, up := range chain {
			f(Window{store.OfChildren, b.Namespace, up, b.Resource, d.Window, d.Start}, d)
		}
	}
}

func entityOf(b store.Bucket) store.Key {
	return store.Key{Namespace: b.Namespace, Kind: store.KindEntity, ID: b.Entity}
}

// maxChain is how many ancestors a descendant's usage counts for.
const maxChain = 8

// ancestors returns the ancestors of the entity of each entry, the nearest first. It looks up the parents of all
// entities together, generation by generation.
func ancestors[T any](
	ctx context.Context, parents func(context.Context, []store.Key) ([]string, error), entries []*Entry[T],
) (map[store.Key][]string, error) {
	at := make(map[store.Key]store.Key, len(entries)) // how far each chain has come
	for _, e := range entries {
		k := entityOf(e.Bucket)
		at[k] = k
	}
	chains := make(map[store.Key][]string)
	for depth := 0; depth < maxChain && len(at) > 0; depth++ {
		ups := make(map[store.Key]string, len(at))
		var keys []store.Key
		for _, k := range at {
			if _, ok := ups[k]; !ok {
				ups[k] = ""
				keys = append(keys, k)
			}
		}
		found, err := parents(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i, k := range keys {
			ups[k] = found[i]
		}
		for from, k := range at {
			up := ups[k]
			if up == "" || slices.Contains(chains[from], up) {
				delete(at, from)
				continue
			}
			chains[from] = append(chains[from], up)
			k.ID = up
			at[from] = k
		}
	}
	return chains, nil
}

// Parents looks up the parents of entities, and remembers each for a while.
type Parents struct {
	Look func(context.Context, []store.Key) ([]string, error)
	Keep time.Duration
	Now  func() time.Time

	mu    sync.Mutex
	known map[store.Key]parent
}

type parent struct {
	id    string
	until time.Time
}

// maxParents is how many entities are remembered.
const maxParents = 50_000

// Of returns the parents of entities.
func (p *Parents) Of(ctx context.Context, entities []store.Key) ([]string, error) {
	now := p.Now()
	out := make([]string, len(entities))
	var unknown []store.Key
	var places []int
	p.mu.Lock()
	if p.known == nil || len(p.known) > maxParents {
		p.known = make(map[store.Key]parent)
	}
	for i, k := range entities {
		known, ok := p.known[k]
		if out[i] = known.id; !ok || now.After(known.until) {
			unknown, places = append(unknown, k), append(places, i)
		}
	}
	p.mu.Unlock()
	if len(unknown) == 0 {
		return out, nil
	}
	found, err := p.Look(ctx, unknown)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range unknown {
		out[places[i]] = found[i]
		p.known[k] = parent{found[i], now.Add(p.Keep)}
	}
	return out, nil
}
