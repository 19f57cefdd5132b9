// Package instances counts the processes that share a store, either by heartbeats in its catalog or by the addresses of
// a DNS name.
//
// With heartbeats, each process has a random number, and each of the processes with the lowest numbers writes a record,
// whose version grows, every few seconds. All processes read the first records. While there are fewer than [Least],
// these are all the processes; beyond that, the density of the lowest numbers gives the total. So the number of writers
// and the records that each process reads are bounded, and the more processes there are, the less often each reads.
//
// A process has gone if its record has not changed for three beats, by the reader's own clock. The count rises at once
// and falls late: it is the largest of the last three minutes in which the store answered. So after an outage, in which
// no process could write, none is taken for gone.
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

// Location of the records: a namespace of their own.
const (
	namespace            = "weir.instances"
	kind      store.Kind = "instance"
)

const (
	// Every is how often a process reads and, if it is a writer, writes, plus or minus a tenth.
	Every = 5 * time.Second
	// Least is the maximum number of writers, apart from processes that have just started, and the number of processes up
	// to which the count is exact. Beyond it, the count is a sixth too high on average, and too low one time in fifty.
	Least = 128
	// turn is how much each process adds to the interval between reads: all together read at most a hundred times a second.
	turn = 10 * time.Millisecond
	// pages is how many times Least records are read at most, to find those of live processes.
	pages = 8
	// gone is how long a record must be unchanged before its process counts as gone.
	gone = 3 * Every
	// hold is how long the count stays up after that many instances were last seen.
	hold = 3 * time.Minute
	// forget is the time after which the store may remove the record of a process that has gone; its clock may be
	// behind by as much.
	forget = time.Hour
	// patience is the timeout of one call to the store.
	patience = 2 * time.Second
)

// Counter counts processes. See [New].
type Counter struct {
	catalog store.Catalog
	resolve func(context.Context) (int, error) // if not nil, used instead of the catalog
	log     *slog.Logger
	id      string
	count   atomic.Int64

	writes  bool      // this process is one of the writers
	due     time.Time // when to read next
	version uint64    // of the own record
	seen    map[string]sighting
	reads   uint64
	deaf    bool      // the store did not answer the last call
	most    time.Time // when at least count processes were last seen
	fewer   int       // the largest number seen since then
}

// sighting is the last observed change of a record.
type sighting struct {
	version uint64
	at      time.Time
	read    uint64 // the read that last found it
}

// New returns a counter whose count is 1 until it runs.
func New(catalog store.Catalog, log *slog.Logger) *Counter {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	c := &Counter{catalog: catalog, log: log, id: hex.EncodeToString(id[:]), seen: make(map[string]sighting)}
	c.count.Store(1)
	return c
}

// Count returns the number of processes, including this one.
func (c *Counter) Count() int { return int(c.count.Load()) }

// Run counts until ctx ends, and then removes its own record.
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
				c.log.WarnContext(ctx, "the instances could not be counted: the last count stays in use", slog.Int("instances", c.Count()), slog.Any("error", err))
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
	case alive == 0 && !c.writes: // no process can write: the count stays
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
		return c.write(ctx) // so that others see it at once
	}
	return nil
}

// round is the interval between reads.
func (c *Counter) round() time.Duration { return max(Every, time.Duration(c.Count())*turn) }

// estimate returns the number of processes, given how many are alive up to the number last. It errs on the high side,
// by two standard deviations above the best guess.
func estimate(alive int, last string) int {
	n, err := strconv.ParseUint(last, 16, 64)
	if err != nil || n == 0 {
		return alive
	}
	high := (float64(alive) + 2*math.Sqrt(float64(alive))) / (float64(n) / (1 << 64))
	return max(alive, int(min(high, 1e9)))
}

// settle updates the count. It rises to alive at once. If it was last reached long ago, it falls to the largest number
// seen since.
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
	if errors.Is(err, store.ErrConflict) { // an earlier write was made but its answer lost, or the record has expired
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

// read returns how many processes are alive up to the number last, which is that of the [Least]-th if there are more.
// Otherwise last is "".
func (c *Counter) read(ctx context.Context) (alive int, last string, err error) {
	c.reads++
	for n, query := 1, (store.Query{Namespace: namespace, Kind: kind, Max: Least}); ; n++ {
		page, err := c.catalog.List(ctx, query)
		if err != nil {
			return 0, "", err
		}
		now := time.Now()
		if c.deaf { // the others could not write either
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

// alive reports whether a record belongs to a live process, this one included.
func (c *Counter) alive(r *store.Record, now time.Time) bool {
	s, known := c.seen[r.Key.ID]
	if !known || s.version != r.Version {
		s.version, s.at = r.Version, now
	}
	s.read = c.reads
	c.seen[r.Key.ID] = s
	return r.Key.ID == c.id || now.Sub(s.at) < gone
}

// leave removes the own record, so that the others need not wait until it is stale.
func (c *Counter) leave(ctx context.Context) {
	if c.version == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = c.catalog.Commit(ctx, store.Write{Record: store.Record{Key: c.key(), Version: c.version}, Delete: true})
}
