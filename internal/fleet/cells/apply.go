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
	"time"

	"github.com/weirlimits/weir/store"
)

// refresh reads the cell's record.
func (a *Agent) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(a.cfg.Beat, minTimeout))
	defer cancel()
	_ = a.apply(ctx) // logged, and the next beat tries again
}

// apply reads the cell's record and makes the deciders of this process use it.
func (a *Agent) apply(ctx context.Context) error {
	a.reading.Lock()
	defer a.reading.Unlock()
	_, err := a.applyLocked(ctx)
	return err
}

// applyLocked is apply with reading locked. It returns the version of the record in the cell's store.
func (a *Agent) applyLocked(ctx context.Context) (version uint64, err error) {
	for try := 1; ; try++ {
		began := time.Now()
		got, err := a.cfg.Local.Get(ctx, heldKey)
		a.heard(err)
		if err != nil {
			return 0, err
		}
		rec := got.Records[0]
		h, err := decode[heldRecord](rec)
		if err != nil {
			return rec.Version, err
		}
		if h.Birth != "" && h.Cell != a.cfg.Cell {
			return rec.Version, fmt.Errorf(
				"%s belongs to cell %q: a store can belong to only one cell", heldKey, h.Cell,
			)
		}
		kept := h.Epoch > a.held.Epoch || h.Epoch == a.held.Epoch && h.Birth == a.held.Birth &&
			h.Version == a.held.Version
		if kept && h.Store != "" {
			a.use(h, began)
			return rec.Version, nil
		}
		again := *h
		if !kept {
			// The store has lost its data. The newer of the two records is written, under an epoch that no bucket has
			// seen.
			a.cfg.Log.Warn(
				"the cell's own store has lost its shares: they are written again", slog.String("cell", a.cfg.Cell),
			)
			if h.Version.Compare(a.held.Version) <= 0 {
				again = a.held
			}
			again.Epoch = max(h.Epoch, a.held.Epoch) + 1
		}
		again.Cell, again.Store = a.cfg.Cell, cmp.Or(a.held.Store, h.Store, strings.ToLower(rand.Text()[:12]))
		began = time.Now()
		if err = a.cfg.Local.Commit(ctx, write(heldKey, rec.Version, again)); err == nil {
			a.use(&again, began)
			return rec.Version + 1, nil
		}
		if !errors.Is(err, store.ErrConflict) || try == tries {
			return rec.Version, err
		}
	}
}

// heard logs when the cell's own store stops answering or answers again.
func (a *Agent) heard(err error) {
	deaf := err != nil && !errors.Is(err, context.Canceled)
	if deaf == a.deaf {
		return
	}
	if a.deaf = deaf; deaf {
		a.cfg.Log.Warn(
			"the cell's own store cannot be read for its shares", slog.String("cell", a.cfg.Cell),
			slog.Any("error", err),
		)
	} else {
		a.cfg.Log.Info("the cell's own store can be read for its shares again", slog.String("cell", a.cfg.Cell))
	}
}

// use puts a record into effect that was read or written no earlier than began.
func (a *Agent) use(h *heldRecord, began time.Time) {
	now := time.Now()
	if h.Epoch != a.held.Epoch || a.adopted.IsZero() {
		a.held, a.adopted = *h, now
	}
	a.held.Store = h.Store
	t := &table{epoch: h.Epoch, shares: h.Shares, least: h.Least}
	if !a.cfg.Alone {
		t.until = began.Add(a.cfg.Valid)
	}
	before := a.table.Swap(t)
	if before.epoch != t.epoch {
		a.cfg.Changed()
	}
	// Clocks may run at different speeds.
	if a.cfg.Alone && h.Epoch > 0 || now.Sub(a.adopted) >= (a.cfg.Valid+a.cfg.Decide)*21/20 {
		a.ack = h.Version
	}
}

// adopt writes the granted shares to the cell's own store and puts them into effect.
func (a *Agent) adopt(ctx context.Context, want *heldRecord) error {
	a.reading.Lock()
	defer a.reading.Unlock()
	for try := 1; ; try++ {
		version, err := a.applyLocked(ctx)
		if err != nil {
			return err
		}
		h := &a.held
		if h.Birth == want.Birth && want.Version.Compare(h.Version) <= 0 &&
			(h.Least == want.Least || want.Version != h.Version) {
			return nil
		}
		want.Epoch, want.Store = h.Epoch+1, h.Store
		began := time.Now()
		err = a.cfg.Local.Commit(ctx, write(heldKey, version, want))
		if errors.Is(err, store.ErrConflict) && try < tries {
			continue // another process of the cell was first
		}
		if err != nil {
			return err
		}
		a.use(want, began)
		return nil
	}
}

// confirmed returns the version that the agent may confirm.
func (a *Agent) confirmed() Version {
	a.reading.Lock()
	defer a.reading.Unlock()
	return a.ack
}

// wanted returns the record that a cell's grant amounts to, if it is for this membership and installation. A removed
// cell, or another installation, gets no share.
func wanted(name, birth, installation string, g *grants, membership *cellRecord) *heldRecord {
	if membership.Birth == "" {
		if birth == "" {
			return nil // it never had a share
		}
		return &heldRecord{Cell: name, Shares: Shares{}}
	}
	c := g.Cells[name]
	if c == nil || c.Birth != membership.Birth {
		if birth == membership.Birth {
			return nil
		}
		return &heldRecord{Cell: name, Birth: membership.Birth, Shares: Shares{}}
	}
	if c.Store != "" && c.Store != installation {
		if birth == "" {
			return nil
		}
		return &heldRecord{Cell: name, Shares: Shares{}}
	}
	return &heldRecord{
		Cell: name, Birth: c.Birth, Version: c.Version, Shares: maps.Clone(c.Shares),
		Least: g.Settings.Mode == Available,
	}
}
