package cells

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
)

// minTimeout applies if the beat is shorter than a slow registry's answer may take.
const minTimeout = time.Second

// beat writes the heartbeat, reads the grants, and writes them if this agent leads.
func (a *Agent) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(a.cfg.Beat, minTimeout))
	defer cancel()
	got, err := a.cfg.Registry.Get(ctx, grantsKey, settingsKey, cellKey(a.cfg.Cell))
	if err != nil {
		return fmt.Errorf("read grants: %w", err)
	}
	g, err := decode[grants](got.Records[0])
	if err != nil {
		return err
	}
	g = a.newest(g)
	set, err := decode[Settings](got.Records[1])
	if err != nil {
		return err
	}
	membership, err := decode[cellRecord](got.Records[2])
	if err != nil {
		return err
	}
	a.settings = set.WithDefaults()
	if err := a.settings.Check(); err != nil {
		return fmt.Errorf("settings of the registry: %w", err)
	}
	birth, installation := a.holds()
	a.double(g.Cells[a.cfg.Cell], membership.Birth, installation)
	if want := wanted(a.cfg.Cell, birth, installation, g, membership); want != nil {
		_ = a.adopt(ctx, want) // a share that the cell's own store did not take is not confirmed
	}
	if membership.Birth == "" {
		return fmt.Errorf("cell %q %w", a.cfg.Cell, ErrNotFound)
	}
	a.birth = membership.Birth
	a.see(g, time.Now())
	if err := a.report(ctx, installation); err != nil {
		return fmt.Errorf("write beat: %w", err)
	}
	rec := got.Records[0]
	if !a.term.Read(rec.Version, g.Leader, g.Epoch, 3*a.cfg.Beat, a.cfg.Beat) {
		a.setLeads(false)
		a.ledger = nil
		return nil
	}
	return a.lead(ctx, rec, g, installation)
}

// newest returns the newest grants that the agent knows. If the registry has lost some since, as after a restore, these
// are not the ones just read; they are returned without a leader, so that they are published again under a new epoch.
func (a *Agent) newest(g *grants) *grants {
	if a.known == nil || a.known.Compare(g.Version) <= 0 {
		a.known = g
		return g
	}
	a.cfg.Log.Warn("the registry of cells has lost grants: they are written again", slog.String("cell", a.cfg.Cell))
	again := *a.known
	again.Leader = ""
	return &again
}

// holds returns the membership that the cell's share belongs to, and the name of its store.
func (a *Agent) holds() (birth, installation string) {
	a.reading.Lock()
	defer a.reading.Unlock()
	return a.held.Birth, a.held.Store
}

// double logs when another installation starts or stops using the cell's name.
func (a *Agent) double(c *cell, birth, installation string) {
	now := 0
	switch {
	case c == nil || c.Birth != birth:
	case c.Store != "" && installation != "" && c.Store != installation:
		now = 2
	case c.Others > 0:
		now = 1
	}
	before := a.doubled
	a.doubled = now
	cell := slog.String("cell", a.cfg.Cell)
	switch now {
	case before:
	case 2:
		a.cfg.Log.Error(
			"another installation, with another store, holds this cell's share: this one has none and admits "+
				"nothing; start it with --cell and its own name",
			cell,
		)
	case 1:
		a.cfg.Log.Error(
			"another installation, with another store, uses this cell's name; it has no share", cell,
			slog.Int("processes", c.Others),
		)
	default:
		a.cfg.Log.Info("no other installation uses this cell's name any more", cell)
	}
}

// see keeps the grants for Status.
func (a *Agent) see(g *grants, now time.Time) {
	v := View{Leader: g.Leader, Version: g.Version, Settings: a.settings, Over: g.Over}
	for _, name := range slices.Sorted(maps.Keys(g.Cells)) {
		c := g.Cells[name]
		v.Cells = append(v.Cells, viewOf(name, seen{cellRecord: cellRecord{Birth: c.Birth}}, c))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.View, a.status.Contact = v, now
}

// report writes the agent's record.
func (a *Agent) report(ctx context.Context, installation string) error {
	a.seq++
	r := instanceRecord{Birth: a.birth, Store: installation, Seq: a.seq, Ack: a.confirmed(), Used: a.used.report(a.seq)}
	if a.settings.Weights == Offered {
		r.Offered = a.offers.rates(a.settings.HalfLife, time.Now())
	}
	k := instanceKey(a.cfg.Cell, a.id)
	put := func() error {
		w := write(k, a.written, r)
		w.Record.Expires = time.Now().Add(forget)
		return a.cfg.Registry.Commit(ctx, w)
	}
	err := put()
	// an answer was lost, or the cell was removed: nobody else writes this record
	if errors.Is(err, store.ErrConflict) {
		var got store.Got
		if got, err = a.cfg.Registry.Get(ctx, k); err == nil {
			a.written = got.Records[0].Version
			err = put()
		}
	}
	if err == nil {
		a.written++
	}
	return err
}

// leave removes the agent's record. The cell becomes missing only if no other agent of it beats, and after an expiry.
func (a *Agent) leave(ctx context.Context) error {
	if a.written == 0 {
		return nil
	}
	w := store.Write{Record: store.Record{Key: instanceKey(a.cfg.Cell, a.id), Version: a.written}, Delete: true}
	if err := a.cfg.Registry.Commit(ctx, w); err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("leave the registry: %w", err)
	}
	return nil
}

// forget is the time without beats after which the registry's store may drop an instance's record. It only tidies up.
const forget = 24 * time.Hour

// lead writes the next grants, on condition that they are still those of rec.
func (a *Agent) lead(ctx context.Context, rec store.Record, g *grants, installation string) error {
	cells, err := a.registry.cells(ctx)
	if err != nil {
		return fmt.Errorf("read beats: %w", err)
	}
	if rec.Version == 0 {
		for _, c := range cells { // if the grants were removed, new ones must not look older than those
			for _, r := range c.instances {
				a.term.Epoch = max(a.term.Epoch, r.Ack.Epoch+1)
			}
		}
	}
	now := time.Now()
	if a.ledger == nil || a.term.Own() != rec.Version {
		a.ledger = newLedger(g, a.cfg.Expiry, now)
	}
	a.ledger.observe(cells, now)
	next := a.ledger.issue(a.id, a.term.Epoch, a.settings, now)
	if err := a.cfg.Registry.Commit(ctx, write(grantsKey, rec.Version, next)); err != nil {
		a.ledger = nil // they may or may not have been written: the next read will show
		a.setLeads(false)
		if errors.Is(err, store.ErrConflict) {
			return nil // another agent leads
		}
		return fmt.Errorf("write grants: %w", err)
	}
	a.term.Wrote(rec.Version+1, 3*a.cfg.Beat, a.cfg.Beat)
	a.known = next
	a.ledger.commit(next)
	a.setLeads(true)
	a.see(next, now)
	if want := wanted(a.cfg.Cell, a.birth, installation, next, &cellRecord{Birth: a.birth}); want != nil {
		_ = a.adopt(ctx, want)
	}
	return nil
}

func (a *Agent) setLeads(leads bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Leads = leads
}

// resign lets another agent lead at once.
func (a *Agent) resign(ctx context.Context) error {
	if a.ledger == nil {
		return nil
	}
	g := a.ledger.last
	g.Leader = ""
	g.Seq++
	if err := a.cfg.Registry.Commit(ctx, write(grantsKey, a.term.Own(), &g)); err != nil &&
		!errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("resign: %w", err)
	}
	return nil
}
