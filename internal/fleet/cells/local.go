package cells

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// localShares is the share in use in the cell: a record in the cell's own store, which all its processes read.
type localShares struct {
	cfg   *Config
	table atomic.Pointer[table]

	reading    chan struct{} // whose turn it is to read and write: full while it is somebody's. It guards the following
	looked     time.Time     // when the last read that succeeded began
	held       sharesRecord
	adopted    time.Time // when the current record was first read
	ack        Version   // nothing older is in use in the cell
	unreadable bool      // the last read failed
}

// table holds the shares that deciders use.
type table struct {
	epoch  uint64
	shares Shares
	least  bool
	until  time.Time
}

// minTimeout applies if the beat is shorter than a slow store's answer may take.
const minTimeout = time.Second

func (o *localShares) init(cfg *Config) {
	o.cfg, o.reading = cfg, make(chan struct{}, 1)
	o.table.Store(&table{})
}

// turn waits until nobody else reads or writes, at most until ctx ends. Call done afterwards.
func (o *localShares) turn(ctx context.Context) (done func(), err error) {
	select {
	case o.reading <- struct{}{}:
		return func() { <-o.reading }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read reads the cell's record and makes the deciders of this process use it. Those who call it while another reads
// have one more read in common.
func (o *localShares) read(ctx context.Context) error {
	called := time.Now()
	done, err := o.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !o.looked.Before(called) {
		return nil
	}
	return o.adoptNow(ctx, nil)
}

// share returns the share of a namespace that was read last.
func (o *localShares) share(namespace string) policy.Share {
	t := o.table.Load()
	return policy.Share{Num: t.shares.Of(namespace), Den: Whole, Epoch: t.epoch, Least: t.least, Until: t.until}
}

// stale reads the cell's record, unless it is newer than an epoch.
func (o *localShares) stale(ctx context.Context, epoch uint64) {
	if o.table.Load().epoch <= epoch {
		_ = o.read(ctx) // the next one tries again
	}
}

// adopt makes the deciders of this process use the cell's record, which it first replaces by want, if that is newer.
func (o *localShares) adopt(ctx context.Context, want *sharesRecord) error {
	done, err := o.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return o.adoptNow(ctx, want)
}

// adoptNow is adopt for a caller whose turn it is.
func (o *localShares) adoptNow(ctx context.Context, want *sharesRecord) error {
	for try := 1; ; try++ {
		began := time.Now()
		h, version, err := read[sharesRecord](ctx, o.cfg.Local, record.SharesKey)
		o.logAccess(err)
		if err != nil {
			return err
		}
		if h.Birth != "" && h.Cell != o.cfg.Cell {
			return fmt.Errorf("%s belongs to cell %q: a store can belong to only one cell", record.SharesKey, h.Cell)
		}
		next := o.next(h, want)
		if next == nil {
			o.putInForce(h, began)
			return nil
		}
		began = time.Now()
		if err = o.cfg.Local.Commit(ctx, write(record.SharesKey, version, next)); err == nil {
			o.putInForce(next, began)
			return nil
		}
		if !errors.Is(err, store.ErrConflict) || try == tries { // otherwise another process of the cell was first
			return err
		}
	}
}

// next returns the record that must replace h; nil if none.
func (o *localShares) next(h, want *sharesRecord) *sharesRecord {
	next := *h
	lost := h.Epoch < o.held.Epoch ||
		h.Epoch == o.held.Epoch && (h.Birth != o.held.Birth || h.Version != o.held.Version)
	if lost {
		o.cfg.Log.Warn(
			"the cell's own store has lost its shares: they are written again", slog.String("cell", o.cfg.Cell),
		)
		if h.Version.Compare(o.held.Version) <= 0 {
			next = o.held
		}
	}
	replace := want != nil && (want.Birth != next.Birth || want.Version.Compare(next.Version) > 0 ||
		want.Version == next.Version && want.Least != next.Least)
	if replace {
		own := next.Shares
		if next = *want; want.capped {
			next.Shares = want.Shares.Cap(own)
		}
	}
	switch {
	case lost || replace:
		next.Epoch = max(h.Epoch, o.held.Epoch) + 1 // which no bucket has seen
	case h.Store != "":
		return nil
	}
	next.Valid = o.cfg.Valid
	next.Cell, next.Store = o.cfg.Cell, cmp.Or(o.held.Store, h.Store, strings.ToLower(rand.Text()[:12]))
	return &next
}

// logAccess logs when the cell's own store stops answering or answers again.
func (o *localShares) logAccess(err error) {
	unreadable := err != nil && !errors.Is(err, context.Canceled)
	if unreadable == o.unreadable {
		return
	}
	if o.unreadable = unreadable; unreadable {
		o.cfg.Log.Warn(
			"the cell's own store cannot be read for its shares", slog.String("cell", o.cfg.Cell),
			slog.Any("error", err),
		)
	} else {
		o.cfg.Log.Info("the cell's own store can be read for its shares again", slog.String("cell", o.cfg.Cell))
	}
}

// putInForce puts a record into effect that was read or written no earlier than began.
func (o *localShares) putInForce(h *sharesRecord, began time.Time) {
	now := time.Now()
	o.looked = began
	if h.Epoch != o.held.Epoch || o.adopted.IsZero() {
		o.held, o.adopted = *h, now
	}
	o.held.Store = h.Store
	t := &table{epoch: h.Epoch, shares: h.Shares, least: h.Least}
	if !o.cfg.Alone {
		t.until = began.Add(o.cfg.Valid)
	}
	before := o.table.Swap(t)
	if before.epoch != t.epoch {
		o.cfg.Changed()
	}
	// Clocks may run at different speeds.
	if o.cfg.Alone && h.Epoch > 0 || now.Sub(o.adopted) >= (o.cfg.Valid+o.cfg.Decide)*21/20 {
		o.ack = h.Version
	}
}

// state returns the membership that the cell's share belongs to, the name of its store, and the version that the agent
// may confirm.
func (o *localShares) state() (birth, installation string, ack Version) {
	o.reading <- struct{}{}
	defer func() { <-o.reading }()
	return o.held.Birth, o.held.Store, o.ack
}

// wanted returns the record that a cell's grant amounts to, if it is for this membership and installation. A removed
// cell, or another installation, gets no share.
func wanted(name, birth, installation string, g *grants, membership *cellRecord) *sharesRecord {
	if membership.Birth == "" {
		if birth == "" {
			return nil // it never had a share
		}
		return &sharesRecord{Cell: name, Shares: Shares{}}
	}
	c := g.Cells[name]
	if c == nil || c.Birth != membership.Birth {
		if birth == membership.Birth {
			return nil
		}
		return &sharesRecord{Cell: name, Birth: membership.Birth, Shares: Shares{}}
	}
	if c.Store != "" && c.Store != installation {
		if birth == "" {
			return nil
		}
		return &sharesRecord{Cell: name, Shares: Shares{}}
	}
	return &sharesRecord{
		Cell: name, Birth: c.Birth, Version: c.Version, Shares: maps.Clone(c.Shares),
		Least: g.Settings.Mode == Available, capped: g.capped(),
	}
}
