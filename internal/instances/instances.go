// Package instances counts the processes that decide over a store together, by heartbeats in its catalog, or by the
// addresses that a name has.
//
// By heartbeats each writes a record with a growing number every few seconds, and reads those of all. A record that has not changed for
// three beats, by the reader's own clock, is of a process that has gone. The count rises at once and falls late: it is the
// largest of the last three minutes in which the store answered. So after an outage, in which nobody could write,
// nobody is taken for gone.
package instances

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

// Where the records are: in a namespace of their own, which has nothing else.
const (
	namespace            = "weir.instances"
	kind      store.Kind = "instance"
)

const (
	// Every is how often a process writes and reads, give or take a tenth.
	Every = 5 * time.Second
	// gone is how long a record must not have changed.
	gone = 3 * Every
	// hold is how long the count stands after more were seen.
	hold = 3 * time.Minute
	// forget is after how long the store may remove what a process that has gone has left.
	forget = time.Hour
	// patience is for one call of the store.
	patience = 2 * time.Second
)

// Counter counts. See [New].
type Counter struct {
	catalog store.Catalog
	resolve func(context.Context) (int, error) // what is looked at instead, if not nil
	log     *slog.Logger
	id      string
	count   atomic.Int64

	version uint64 // of the own record
	seen    map[string]sighting
	deaf    bool      // the store did not answer the last time
	most    time.Time // when there were at least as many as the count says
	fewer   int       // the most seen since
}

// sighting is a record as it was seen to change last.
type sighting struct {
	version uint64
	at      time.Time
}

// New returns a counter that counts one, until it runs.
func New(catalog store.Catalog, log *slog.Logger) *Counter {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	c := &Counter{catalog: catalog, log: log, id: hex.EncodeToString(id[:]), seen: make(map[string]sighting)}
	c.count.Store(1)
	return c
}

// Count returns how many there are, this one included.
func (c *Counter) Count() int { return int(c.count.Load()) }

// Run counts until ctx ends, and then takes its own record away.
func (c *Counter) Run(ctx context.Context) error {
	defer c.leave(context.WithoutCancel(ctx))
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		if err := c.beat(ctx); err != nil && ctx.Err() == nil {
			if !c.deaf {
				c.log.WarnContext(ctx, "the instances are not counted: the number stays", slog.Int("instances", c.Count()), slog.Any("error", err))
			}
			c.deaf = true
		}
		next.Reset(Every - Every/10 + mathrand.N(Every/5))
	}
}

// beat writes the own record and counts the others.
func (c *Counter) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.resolve != nil {
		alive, err := c.resolve(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		if c.deaf {
			c.deaf, c.most = false, now
		}
		c.settle(alive, now)
		return nil
	}
	if err := c.write(ctx); err != nil {
		return err
	}
	versions, err := c.read(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	if c.deaf { // nor could the others write
		for id, s := range c.seen {
			s.at = now
			c.seen[id] = s
		}
		c.deaf, c.most = false, now
	}
	alive := 0
	for id, version := range versions {
		s, known := c.seen[id]
		if !known || s.version != version {
			s = sighting{version, now}
			c.seen[id] = s
		}
		if id == c.id || now.Sub(s.at) < gone {
			alive++
		}
	}
	for id := range c.seen {
		if _, ok := versions[id]; !ok {
			delete(c.seen, id)
		}
	}
	c.settle(alive, now)
	return nil
}

// settle makes the count of how many are alive: it rises at once, and falls to the most that were seen since it last was
// reached, when that was long ago.
func (c *Counter) settle(alive int, now time.Time) {
	before := c.Count()
	switch {
	case alive >= before:
		c.most, c.fewer = now, 0
		c.count.Store(int64(alive))
	case now.Sub(c.most) >= hold:
		c.count.Store(int64(max(c.fewer, alive)))
		c.most, c.fewer = now, 0
	default:
		c.fewer = max(c.fewer, alive)
	}
	if n := c.Count(); n != before {
		c.log.Info("the number of instances has changed", slog.Int("instances", n), slog.Int("before", before))
	}
}

func (c *Counter) key() store.Key { return store.Key{Namespace: namespace, Kind: kind, ID: c.id} }

// write raises the version of the own record, which is the number that grows.
func (c *Counter) write(ctx context.Context) error {
	r := store.Record{Key: c.key(), Version: c.version, Value: []byte("{}"), Expires: time.Now().Add(forget)}
	err := c.catalog.Commit(ctx, store.Write{Record: r})
	if errors.Is(err, store.ErrConflict) { // a write before was made though its answer was lost, or the record has expired
		got, gerr := c.catalog.Get(ctx, c.key())
		if gerr != nil {
			return gerr
		}
		r.Version = got.Records[0].Version
		err = c.catalog.Commit(ctx, store.Write{Record: r})
	}
	if err != nil {
		return err
	}
	c.version = r.Version + 1
	return nil
}

func (c *Counter) read(ctx context.Context) (map[string]uint64, error) {
	versions := make(map[string]uint64)
	for query := (store.Query{Namespace: namespace, Kind: kind, Max: 1000}); ; {
		page, err := c.catalog.List(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Records {
			versions[r.Key.ID] = r.Version
		}
		if page.Next == "" {
			return versions, nil
		}
		query.After = page.Next
	}
}

// leave takes the own record away, so that the others need not wait until it is old.
func (c *Counter) leave(ctx context.Context) {
	if c.version == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = c.catalog.Commit(ctx, store.Write{Record: store.Record{Key: c.key(), Version: c.version}, Delete: true})
}
