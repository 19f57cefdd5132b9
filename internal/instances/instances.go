// Package instances counts the processes that decide over a store together, by heartbeats in its catalog, or by the
// addresses that a name has.
//
// By heartbeats: each process has a random number, and of those with the least ones each writes a record that grows, every few
// seconds. All read the first records: as long as there are fewer than [Least] these are all processes, and from then on
// how dense the least numbers are tells how many there are. So no more than some write, each reads no more than
// that, and the more there are the more seldom each reads.
//
// A record that has not changed for three beats, by the reader's own clock, is of a process that has gone. The count rises at once
// and falls late: it is the largest of the last three minutes in which the store answered. So after an outage, in which nobody
// could write, nobody is taken for gone.
package instances

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"strconv"
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
	// Every is how often a process writes, if it does, and reads, give or take a tenth.
	Every = 5 * time.Second
	// Least is how many write at most, but for who has just begun, and to how many processes the count is exact. Of more
	// it is a sixth too high on average, and one time in fifty too low.
	Least = 128
	// turn is how much more seldom each reads for each process that there is: all together at most a hundred times a second.
	turn = 10 * time.Millisecond
	// pages is how often Least records are read for want of those of processes that are there.
	pages = 8
	// gone is how long a record must not have changed.
	gone = 3 * Every
	// hold is how long the count stands after more were seen.
	hold = 3 * time.Minute
	// forget is after how long the store may remove what a process that has gone has left; so far its clock may be behind.
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

	writes  bool      // it is one of those that write
	due     time.Time // when to read
	version uint64    // of the own record
	seen    map[string]sighting
	reads   uint64
	deaf    bool      // the store did not answer the last time
	most    time.Time // when there were at least as many as the count says
	fewer   int       // the most seen since
}

// sighting is a record as it was seen to change last.
type sighting struct {
	version uint64
	at      time.Time
	read    uint64 // that found it
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
		pause := Every - Every/10 + mathrand.N(Every/5)
		if !c.writes && !c.deaf {
			pause = max(pause, time.Until(c.due))
		}
		next.Reset(pause)
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
	if c.writes {
		if err := c.write(ctx); err != nil {
			return err
		}
	}
	now := time.Now()
	if !c.deaf && now.Before(c.due) {
		return nil
	}
	alive, last, err := c.read(ctx)
	if err != nil {
		return err
	}
	wrote := c.writes
	c.writes = last == "" || c.id <= last
	switch _, found := c.seen[c.id]; {
	case alive == 0 && !c.writes: // nobody can write: the number stays
		c.most = now
		return nil
	case c.writes && !found:
		alive++
	}
	if last != "" {
		alive = estimate(alive, last)
	}
	c.settle(alive, now)
	c.due = now
	if rest := c.round() - Every; rest > 0 {
		c.due = now.Add(rest + mathrand.N(2*Every))
	}
	if c.writes && !wrote {
		return c.write(ctx) // so that it is seen at once
	}
	return nil
}

// round is how often a process reads.
func (c *Counter) round() time.Duration { return max(Every, time.Duration(c.Count())*turn) }

// estimate returns how many processes there are of whose numbers so many are at most the last one, rather too many: two
// standard deviations above the best guess.
func estimate(alive int, last string) int {
	n, err := strconv.ParseUint(last, 16, 64)
	if err != nil || n == 0 {
		return alive
	}
	high := (float64(alive) + 2*math.Sqrt(float64(alive))) / (float64(n) / (1 << 64))
	return max(alive, int(min(high, 1e9)))
}

// settle makes the count of how many are alive: it rises at once, and falls to the most that were seen since it last was
// reached, when that was long ago.
func (c *Counter) settle(alive int, now time.Time) {
	before := c.Count()
	switch {
	case alive >= before:
		c.most, c.fewer = now, 0
		c.count.Store(int64(alive))
	case now.Sub(c.most) >= max(hold, 3*c.round()):
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

// read returns how many are there of those whose numbers are at most the last one, which is [Least] if there are more. It is ""
// if there are none.
func (c *Counter) read(ctx context.Context) (alive int, last string, err error) {
	c.reads++
	for n, query := 1, (store.Query{Namespace: namespace, Kind: kind, Max: Least}); ; n++ {
		page, err := c.catalog.List(ctx, query)
		if err != nil {
			return 0, "", err
		}
		now := time.Now()
		if c.deaf { // nor could the others write
			for id, s := range c.seen {
				s.at = now
				c.seen[id] = s
			}
			c.deaf, c.most = false, now
		}
		for i, r := range page.Records {
			if c.alive(&r, now) {
				alive++
			}
			if alive == Least && (i+1 < len(page.Records) || page.Next != "") {
				last = r.Key.ID
				break
			}
		}
		if last != "" || page.Next == "" {
			break
		}
		if n == pages { // too many have gone
			last = page.Records[len(page.Records)-1].Key.ID
			break
		}
		query.After = page.Next
	}
	for id, s := range c.seen {
		if s.read != c.reads {
			delete(c.seen, id)
		}
	}
	return alive, last, nil
}

// alive reports whether a record is of a process that is there, itself included.
func (c *Counter) alive(r *store.Record, now time.Time) bool {
	s, known := c.seen[r.Key.ID]
	if !known || s.version != r.Version {
		s.version, s.at = r.Version, now
	}
	s.read = c.reads
	c.seen[r.Key.ID] = s
	return r.Key.ID == c.id || now.Sub(s.at) < gone
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
