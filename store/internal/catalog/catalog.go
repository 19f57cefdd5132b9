// Package catalog keeps versioned, ordered records in memory, for the embedded stores: memory, which adds nothing,
// and disk, which writes each commit to its file before it is applied here.
package catalog

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
)

// Catalog holds records. See [New].
type Catalog struct {
	now    func() time.Time
	commit sync.Mutex // one commit at a time; held while the commit is made durable
	hands  map[list]int

	mu     sync.RWMutex
	lists  map[list][]*store.Record // ordered by ID, then Sub; records never change
	epochs map[string]uint64
}

type list struct {
	namespace string
	kind      store.Kind
}

// New returns an empty catalog. A nil now means time.Now.
func New(now func() time.Time) *Catalog {
	if now == nil {
		now = time.Now
	}
	return &Catalog{
		now: now, hands: make(map[list]int), lists: make(map[list][]*store.Record), epochs: make(map[string]uint64),
	}
}

// Load adds a record as it was written before, with its namespace's epoch.
func (c *Catalog) Load(r store.Record) { c.put(&r) }

// LoadEpoch sets a namespace's epoch as it was written before.
func (c *Catalog) LoadEpoch(namespace string, epoch uint64) { c.epochs[namespace] = epoch }

// Get implements store.Catalog.
func (c *Catalog) Get(keys []store.Key) (store.Got, error) {
	now := c.now()
	got := store.Got{Records: make([]store.Record, len(keys))}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i, k := range keys {
		if k.Namespace != keys[0].Namespace {
			return store.Got{}, store.ErrInvalid
		}
		got.Epoch = c.epochs[k.Namespace]
		got.Records[i].Key = k
		if r := c.live(k, now); r != nil {
			got.Records[i] = *r
		}
	}
	return got, nil
}

// Parent returns the parent under which a record is indexed, or "" if there is none.
func (c *Catalog) Parent(k store.Key) string {
	now := c.now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	if r := c.live(k, now); r != nil {
		return r.Parent
	}
	return ""
}

// Persist makes a commit durable before it is applied. It receives the records as they will be (Version 0: deleted)
// and the epochs that rise.
type Persist func(records []store.Record, epochs map[string]uint64) error

// Commit implements store.Catalog. Persist, if not nil, is called before the writes become visible; if it fails,
// nothing is written.
func (c *Catalog) Commit(writes []store.Write, persist Persist) error {
	c.commit.Lock()
	defer c.commit.Unlock()
	records, epochs, err := c.prepare(writes)
	if err != nil {
		return err
	}
	if persist != nil {
		if err := persist(records, epochs); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range records {
		if records[i].Version == 0 {
			c.remove(records[i].Key)
		} else {
			c.put(&records[i])
		}
	}
	maps.Copy(c.epochs, epochs)
	return nil
}

func (c *Catalog) prepare(writes []store.Write) ([]store.Record, map[string]uint64, error) {
	if err := store.CheckWrites(writes); err != nil {
		return nil, nil, err
	}
	now := c.now()
	records := make([]store.Record, 0, len(writes))
	epochs := make(map[string]uint64)
	c.mu.RLock()
	defer c.mu.RUnlock()
	seen := make(map[store.Key]bool, len(writes))
	for _, w := range writes {
		k := w.Record.Key
		if seen[k] || k.Namespace == "" || k.Kind == "" || w.Check && w.Delete {
			return nil, nil, store.ErrInvalid
		}
		seen[k] = true
		var have uint64
		if r := c.live(k, now); r != nil {
			have = r.Version
		}
		if have != w.Record.Version || w.Delete && have == 0 {
			return nil, nil, &store.ConflictError{Key: k, Have: have, Want: w.Record.Version}
		}
		if w.Check {
			continue
		}
		r := store.Record{Key: k}
		if !w.Delete {
			r = w.Record
			r.Version = have + 1
			r.Value = bytes.Clone(w.Record.Value)
		}
		records = append(records, r)
		epochs[k.Namespace] = c.epochs[k.Namespace] + 1
	}
	return c.withExpired(records, seen, now), epochs, nil
}

// withExpired adds the removal of some expired records of the lists being written to. It checks the front of each
// list, since events are in order of time, and advances a hand around the list to find the others.
func (c *Catalog) withExpired(records []store.Record, seen map[store.Key]bool, now time.Time) []store.Record {
	for _, w := range slices.Clone(records) {
		l := list{w.Key.Namespace, w.Key.Kind}
		rs := c.lists[l]
		hand := c.hands[l]
		if hand >= len(rs) {
			hand = 0
		}
		c.hands[l] = hand + 2
		for _, some := range [][]*store.Record{rs[:min(2, len(rs))], rs[hand:min(hand+2, len(rs))]} {
			for _, r := range some {
				if expired(r, now) && !seen[r.Key] {
					seen[r.Key] = true
					records = append(records, store.Record{Key: r.Key})
				}
			}
		}
	}
	return records
}

// List implements store.Catalog.
func (c *Catalog) List(q store.Query) (store.Page, error) {
	pages := cursor.OfRecords(&q)
	var after cursor.Position
	if q.After != "" {
		var err error
		if after, err = pages.Parse(q.After); err != nil {
			return store.Page{}, err
		}
	}
	now := c.now()
	limit := store.PageSize(q.Max)
	c.mu.RLock()
	defer c.mu.RUnlock()
	rs := c.lists[list{q.Namespace, q.Kind}]
	from, step := 0, 1
	switch {
	case q.ID != "" && !q.Reverse:
		from, _ = search(rs, q.ID, q.Sub)
	case q.ID == "" && q.Prefix != "":
		low, _ := search(rs, q.Prefix, "")
		rs = rs[low:]
		rs = rs[:sort.Search(len(rs), func(i int) bool { return !strings.HasPrefix(rs[i].Key.ID, q.Prefix) })]
	}
	if q.After != "" {
		at, found := search(rs, after.ID, after.Sub)
		if from = at; found && !q.Reverse {
			from++
		}
	}
	if q.Reverse {
		step = -1
		if q.After == "" {
			from = len(rs)
		}
		from--
	}
	var page store.Page
	for i := from; i >= 0 && i < len(rs); i += step {
		r := rs[i]
		if q.ID != "" && r.Key.ID != q.ID {
			if q.Reverse && r.Key.ID > q.ID {
				continue
			}
			break
		}
		if q.Sub != "" && r.Key.Sub != q.Sub || q.Parent != "" && r.Parent != q.Parent || expired(r, now) {
			continue
		}
		if len(page.Records) == limit {
			last := page.Records[limit-1].Key
			page.Next = pages.Make(cursor.Position{ID: last.ID, Sub: last.Sub})
			break
		}
		page.Records = append(page.Records, *r)
	}
	return page, nil
}

func (c *Catalog) live(k store.Key, now time.Time) *store.Record {
	rs := c.lists[list{k.Namespace, k.Kind}]
	if i, ok := search(rs, k.ID, k.Sub); ok && !expired(rs[i], now) {
		return rs[i]
	}
	return nil
}

func (c *Catalog) put(r *store.Record) {
	l := list{r.Key.Namespace, r.Key.Kind}
	rs := c.lists[l]
	if i, ok := search(rs, r.Key.ID, r.Key.Sub); ok {
		rs[i] = r
	} else {
		c.lists[l] = slices.Insert(rs, i, r)
	}
}

func (c *Catalog) remove(k store.Key) {
	l := list{k.Namespace, k.Kind}
	rs := c.lists[l]
	if i, ok := search(rs, k.ID, k.Sub); ok {
		c.lists[l] = slices.Delete(rs, i, i+1)
	}
}

func search(rs []*store.Record, id, sub string) (int, bool) {
	if n := len(rs); n > 0 { // appending in order is the common case
		if k := rs[n-1].Key; cmp.Or(cmp.Compare(k.ID, id), cmp.Compare(k.Sub, sub)) < 0 {
			return n, false
		}
	}
	return slices.BinarySearchFunc(rs, cursor.Position{ID: id, Sub: sub}, func(r *store.Record, c cursor.Position) int {
		return cmp.Or(cmp.Compare(r.Key.ID, c.ID), cmp.Compare(r.Key.Sub, c.Sub))
	})
}

func expired(r *store.Record, now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}
