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
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

// localShares is the share in use in the cell: a record in the cell's own store, which all its processes read.
type localShares struct {
	cfg   *Config
	table atomic.Pointer[table]

	reading    sync.Mutex // guards the following
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

// read reads the cell's record and makes the deciders of this process use it.
func (o *localShares) read(ctx context.Context) error {
	o.reading.Lock()
	defer o.reading.Unlock()
	_, err := o.readLocked(ctx)
	return err
}

// readLocked is read with reading locked. It returns the version of the record in the cell's store.
func (o *localShares) readLocked(ctx context.Context) (version uint64, err error) {
	for try := 1; ; try++ {
		began := time.Now()
		h, version, err := read[sharesRecord](ctx, o.cfg.Local, sharesKey)
		o.logAccess(err)
		if err != nil {
			return 0, err
		}
		if h.Birth != "" && h.Cell != o.cfg.Cell {
			return version, fmt.Errorf(
				"%s belongs to cell %q: a store can belong to only one cell", sharesKey, h.Cell,
			)
		}
		kept := h.Epoch > o.held.Epoch || h.Epoch == o.held.Epoch && h.Birth == o.held.Birth &&
			h.Version == o.held.Version
		if kept && h.Store != "" {
			o.putInForce(h, began)
			return version, nil
		}
		again := *h
		if !kept {
			// The store has lost its data. The newer of the two records is written, under an epoch that no bucket has
			// seen.
			o.cfg.Log.Warn(
				"the cell's own store has lost its shares: they are written again", slog.String("cell", o.cfg.Cell),
			)
			if h.Version.Compare(o.held.Version) <= 0 {
				again = o.held
			}
			again.Epoch = max(h.Epoch, o.held.Epoch) + 1
		}
		again.Cell, again.Store = o.cfg.Cell, cmp.Or(o.held.Store, h.Store, strings.ToLower(rand.Text()[:12]))
		began = time.Now()
		if err = o.cfg.Local.Commit(ctx, write(sharesKey, version, again)); err == nil {
			o.putInForce(&again, began)
			return version + 1, nil
		}
		if !errors.Is(err, store.ErrConflict) || try == tries {
			return version, err
		}
	}
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

// adopt writes the granted shares to the cell's own store and puts them into effect.
func (o *localShares) adopt(ctx context.Context, want *sharesRecord) error {
	o.reading.Lock()
	defer o.reading.Unlock()
	for try := 1; ; try++ {
		version, err := o.readLocked(ctx)
		if err != nil {
			return err
		}
		h := &o.held
		if h.Birth == want.Birth && want.Version.Compare(h.Version) <= 0 &&
			(h.Least == want.Least || want.Version != h.Version) {
			return nil
		}
		want.Epoch, want.Store = h.Epoch+1, h.Store
		began := time.Now()
		err = o.cfg.Local.Commit(ctx, write(sharesKey, version, want))
		if errors.Is(err, store.ErrConflict) && try < tries {
			continue // another process of the cell was first
		}
		if err != nil {
			return err
		}
		o.putInForce(want, began)
		return nil
	}
}

// state returns the membership that the cell's share belongs to, the name of its store, and the version that the agent
// may confirm.
func (o *localShares) state() (birth, installation string, ack Version) {
	o.reading.Lock()
	defer o.reading.Unlock()
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
		Least: g.Settings.Mode == Available,
	}
}
