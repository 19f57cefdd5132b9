package cells

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

// protocol is an agent's part in the fleet of all cells' agents. Only the goroutine that beats uses it.
type protocol struct {
	a          *Agent
	registry   Registry
	settings   Settings
	membership cellRecord // of the cell, according to the registry
	conflict   int        // use of the name by others, as last logged: 0 none, 1 by others too, 2 others were first

	// While leading.
	now    time.Time // when the reports were read
	cells  map[string]seen
	ledger *ledger
}

// Beat implements [fleet.Protocol].
func (p *protocol) Beat() (beat time.Duration, hurry bool) { return p.a.cfg.Beat, false }

// None implements [fleet.Protocol].
func (p *protocol) None() *grants { return new(grants) }

// Report implements [fleet.Protocol]. It fails if the cell is not in the registry, and takes its share away if it was.
func (p *protocol) Report(ctx context.Context, seq uint64) (any, error) {
	got, err := p.registry.Catalog.Get(ctx, settingsKey, cellKey(p.a.cfg.Cell))
	if err != nil {
		return nil, fmt.Errorf("read the registry: %w", err)
	}
	set, err := decode[Settings](got.Records[0])
	if err != nil {
		return nil, err
	}
	p.settings = set.WithDefaults()
	if err := p.settings.Check(); err != nil {
		return nil, fmt.Errorf("settings of the registry: %w", err)
	}
	membership, err := decode[cellRecord](got.Records[1])
	if err != nil {
		return nil, err
	}
	p.membership = *membership
	if membership.Birth == "" {
		p.adopt(ctx, p.None())
		return nil, fmt.Errorf("cell %q %w", p.a.cfg.Cell, ErrNotFound)
	}
	_, installation, ack := p.a.local.state()
	r := instanceRecord{
		Birth: membership.Birth, Store: installation, Seq: seq, Ack: ack,
		Beat: p.a.cfg.Beat.Milliseconds(), Used: p.a.used.report(seq),
	}
	if p.settings.Weights == Offered {
		r.Offered = p.a.offers.rates(p.settings.HalfLife, time.Now())
	}
	return r, nil
}

// Follow implements [fleet.Protocol].
func (p *protocol) Follow(ctx context.Context, g *grants) {
	_, installation, _ := p.a.local.state()
	p.logConflict(g.Cells[p.a.cfg.Cell], p.membership.Birth, installation)
	p.publish(g, time.Now())
	p.adopt(ctx, g)
}

// adopt puts what the cell is granted into effect. What its own store does not take is not confirmed.
func (p *protocol) adopt(ctx context.Context, g *grants) {
	birth, installation, _ := p.a.local.state()
	if want := wanted(p.a.cfg.Cell, birth, installation, g, &p.membership); want != nil {
		_ = p.a.local.adopt(ctx, want)
	}
}

// Reports implements [fleet.Protocol].
func (p *protocol) Reports(ctx context.Context) (epoch uint64, err error) {
	p.cells, err = p.registry.cells(ctx)
	p.now = time.Now()
	for _, c := range p.cells {
		for _, r := range c.instances {
			epoch = max(epoch, r.Ack.Epoch)
		}
	}
	return epoch, err
}

// TakeOver implements [fleet.Protocol].
func (p *protocol) TakeOver(g *grants) { p.ledger = newLedger(g, p.a.cfg.Expiry, p.now) }

// Issue implements [fleet.Protocol].
func (p *protocol) Issue(h fleet.Head) *grants {
	p.ledger.observe(p.cells, p.now)
	return p.ledger.issue(h, p.settings, p.now)
}

// Commit implements [fleet.Protocol].
func (p *protocol) Commit(_ context.Context, g *grants) error {
	p.ledger.commit(g)
	return nil
}

// logConflict logs when another installation starts or stops using the cell's name.
func (p *protocol) logConflict(c *cell, birth, installation string) {
	now := 0
	switch {
	case c == nil || c.Birth != birth:
	case c.Store != "" && installation != "" && c.Store != installation:
		now = 2
	case c.Others > 0:
		now = 1
	}
	before := p.conflict
	p.conflict = now
	cell := slog.String("cell", p.a.cfg.Cell)
	switch now {
	case before:
	case 2:
		p.a.cfg.Log.Error(
			"another installation, with another store, holds this cell's share: this one has none and admits "+
				"nothing; start it with --cell and its own name",
			cell,
		)
	case 1:
		p.a.cfg.Log.Error(
			"another installation, with another store, uses this cell's name; it has no share", cell,
			slog.Int("processes", c.Others),
		)
	default:
		p.a.cfg.Log.Info("no other installation uses this cell's name any more", cell)
	}
}

// publish keeps the grants for Status.
func (p *protocol) publish(g *grants, now time.Time) {
	v := View{Leader: g.Leader, Version: g.Version, Settings: p.settings, Over: g.Over, Differ: g.Differ}
	for _, name := range slices.Sorted(maps.Keys(g.Cells)) {
		c := g.Cells[name]
		v.Cells = append(v.Cells, viewOf(name, seen{cellRecord: cellRecord{Birth: c.Birth}}, c))
	}
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	p.a.view, p.a.contact = v, now
}
