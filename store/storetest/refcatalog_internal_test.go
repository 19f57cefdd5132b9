package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
)

// refCatalog is the catalog of a reference store.
type refCatalog struct {
	flaw    string
	clock   func() time.Time
	mu      sync.Mutex
	records map[store.Key]store.Record
	epochs  map[string]uint64
	past    map[store.Key]uint64 // the last versions of deleted records, for a flaw
}

func (c *refCatalog) has(flaw string) bool { return c.flaw == flaw }

func (c *refCatalog) live(k store.Key) (store.Record, bool) {
	r, ok := c.records[k]
	if ok && !r.Expires.IsZero() && !c.clock().Before(r.Expires) && !c.has("nothing expires") {
		return store.Record{}, false
	}
	return r, ok
}

func (s *reference) Get(ctx context.Context, keys ...store.Key) (got store.Got, err error) {
	if err := s.ready(ctx); err != nil {
		return got, err
	}
	c := &s.catalog
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		r, _ := c.live(k)
		got.Records = append(got.Records, r)
	}
	if s.has("the epoch is read last") {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	if len(keys) > 0 {
		got.Epoch = c.epochs[keys[0].Namespace]
	}
	return got, nil
}

func (s *reference) Commit(ctx context.Context, writes ...store.Write) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	c := &s.catalog
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := store.CheckWrites(writes); err != nil {
		return err
	}
	seen := map[store.Key]bool{}
	for _, w := range writes {
		if seen[w.Record.Key] {
			return store.ErrInvalid
		}
		seen[w.Record.Key] = !s.has("a key twice")
	}
	for _, w := range writes {
		r, _ := c.live(w.Record.Key)
		if w.Check && w.Delete {
			return store.ErrInvalid
		}
		if r.Version != w.Record.Version && !s.has("overwrites") && !(w.Check && s.has("checks nothing")) {
			return &store.ConflictError{Key: w.Record.Key, Have: r.Version, Want: w.Record.Version}
		}
		if s.has("half a commit") {
			c.write(w)
		}
	}
	named := map[string]bool{}
	for _, w := range writes {
		if w.Check && !s.has("a check writes") {
			continue
		}
		if !s.has("half a commit") {
			c.write(w)
		}
		named[w.Record.Key.Namespace] = true
	}
	for ns := range named {
		if !s.has("epochs stand still") {
			c.epochs[ns]++
		}
	}
	if s.has("one epoch for all") {
		for ns := range c.epochs {
			c.epochs[ns]++
		}
	}
	return nil
}

func (c *refCatalog) write(w store.Write) {
	k := w.Record.Key
	if w.Delete {
		if c.has("versions go on") {
			if c.past == nil {
				c.past = map[store.Key]uint64{}
			}
			c.past[k] = w.Record.Version
		}
		delete(c.records, k)
		return
	}
	r := w.Record
	r.Version += 1 + c.past[k]
	if !c.has("shares values") {
		r.Value = slices.Clone(r.Value)
	}
	c.records[k] = r
}

func (s *reference) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	if err := s.ready(ctx); err != nil {
		return page, err
	}
	c := &s.catalog
	c.mu.Lock()
	defer c.mu.Unlock()
	of := fmt.Sprintf("%q %q %q %q %q %q %t", q.Namespace, q.Kind, q.ID, q.Prefix, q.Sub, q.Parent, q.Reverse)
	if s.has("any cursor") {
		of = ""
	}
	after, err := decode(q.After, of)
	inside := (q.ID == "" || after[0] == q.ID) && (q.ID != "" || s.begins(after[0], q.Prefix))
	if err == nil && q.After != "" && !inside && !s.has("any position") && !s.has("pages by number") {
		err = store.ErrBadCursor
	}
	if err != nil {
		return page, err
	}
	var all []store.Record
	for k := range c.records {
		r, ok := c.live(k)
		if ok && k.Namespace == q.Namespace && k.Kind == q.Kind && (q.ID == "" || q.ID == k.ID) && (q.Sub == "" || q.Sub == k.Sub) &&
			(q.Parent == "" || q.Parent == r.Parent) && (q.ID != "" || s.begins(k.ID, q.Prefix)) {
			all = append(all, r)
		}
	}
	order := func(a, b store.Record) int {
		return cmp.Or(cmp.Compare(a.Key.ID, b.Key.ID), cmp.Compare(a.Key.Sub, b.Key.Sub))
	}
	if s.has("orders ids run together") {
		order = func(a, b store.Record) int { return strings.Compare(a.Key.ID+"/"+a.Key.Sub, b.Key.ID+"/"+b.Key.Sub) }
	}
	slices.SortFunc(all, order)
	if q.Reverse {
		slices.Reverse(all)
	}
	for i, r := range all {
		rel := order(r, store.Record{Key: store.Key{ID: after[0], Sub: after[1]}})
		if q.Reverse {
			rel = -rel
		}
		if s.has("pages by number") {
			rel = i + 1 - len(after[0])
		}
		if q.After != "" && rel <= 0 {
			continue
		}
		if len(page.Records) == store.PageSize(q.Max) {
			last := page.Records[len(page.Records)-1].Key
			page.Next = encode(of, last.ID, last.Sub)
			if s.has("pages by number") {
				page.Next = encode(of, strings.Repeat("x", i), "")
			}
			break
		}
		page.Records = append(page.Records, r)
	}
	return page, nil
}

func (s *reference) begins(id, prefix string) bool {
	if s.has("any case") {
		id, prefix = strings.ToLower(id), strings.ToLower(prefix)
	}
	return strings.HasPrefix(id, prefix)
}

// A cursor holds the position of the last entry and the list that it belongs to.
func encode(of, a, b string) string {
	raw, err := json.Marshal([]string{of, a, b})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func decode(cursor, of string) (pos [2]string, err error) {
	if cursor == "" {
		return pos, nil
	}
	var parts []string
	if json.Unmarshal([]byte(cursor), &parts) != nil || len(parts) != 3 || parts[0] != of {
		return pos, store.ErrBadCursor
	}
	return [2]string{parts[1], parts[2]}, nil
}
