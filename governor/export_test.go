package governor

import "context"

// Spend takes units from the account's budget and uses them, like a call of known cost.
func (g *Governor) Spend(ctx context.Context, dir Direction, units float64) error {
	settle, err := g.Begin(ctx, "", dir, units)
	if err == nil {
		settle(units)
	}
	return err
}

// Begin takes the estimated cost of a call on a table ("": only from the account). The returned function reports the
// actual cost.
func (g *Governor) Begin(ctx context.Context, table string, dir Direction, units float64) (func(cost float64), error) {
	c := newCall(g, putItem, dir)
	c.add(g.tableOf(table), nil, dir, int64(units*milli))
	c.claim()
	if err := g.reserve(ctx, c.claims); err != nil {
		return nil, err
	}
	return func(cost float64) {
		for _, cl := range c.claims {
			cl.b.settle(g.now(), cl.estimate, int64(cost*milli), true)
		}
	}, nil
}

// Touch looks up a table and an index of it ("": none).
func (g *Governor) Touch(table, index string) {
	if t := g.tableOf(table); index != "" {
		t.index(index)
	}
}

// Kept returns how many tables and budgets are kept, and how many indexes of a table.
func (g *Governor) Kept(table string) (tables, budgets, indexes int) {
	return len(g.tables), len(g.budgets), len(g.tableOf(table).indexes)
}

// Parse is parse.
func Parse(text string) (table, index string, dir Direction) {
	s := parse(text)
	return s.table, s.index, s.dir
}
