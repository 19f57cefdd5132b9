package governor

import (
	"cmp"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// operation is a kind of operation that reports what it consumed.
type operation int

const (
	getItem operation = iota
	batchGetItem
	query
	scan
	transactGetItems
	putItem
	updateItem
	deleteItem
	batchWriteItem
	transactWriteItems
	executeStatement
	batchExecuteStatement
	executeTransaction
	operations
)

// call is a governed call, from its estimate to its settlement.
type call struct {
	g      *Governor
	op     operation
	dir    Direction
	parts  []part
	claims []claim

	sent    bool // the current attempt may have been
	unknown int  // attempts that may or may not have been carried out

	partsBuf  [3]part
	claimsBuf [4]claim
}

// part is what a call does to one table or index.
type part struct {
	t      *table
	x      *index // nil for the table
	dir    Direction
	weight int64 // the cost by the look of the request
	cost   int64 // the actual cost
	known  bool  // whether cost is known
}

func (p *part) ratio(op operation) *ratio {
	if p.x != nil {
		return &p.x.learned[op]
	}
	return &p.t.learned[op]
}

func (p *part) budget() *budget {
	if p.x != nil && p.x.budgets[p.dir] != nil {
		return p.x.budgets[p.dir]
	}
	return p.t.budgets[p.dir]
}

func (p *part) estimate(op operation) int64 {
	return int64(float64(p.weight)*p.ratio(op).load() + 0.5)
}

func newCall(g *Governor, op operation, dir Direction) *call {
	c := &call{g: g, op: op, dir: dir}
	c.parts, c.claims = c.partsBuf[:0], c.claimsBuf[:0]
	return c
}

// tableOf returns a table: that of the call's parts, if they have one of that name.
func (c *call) tableOf(name string) *table {
	t := c.g.tableOf(name)
	for i := range c.parts {
		if c.parts[i].t.name == t.name {
			return c.parts[i].t
		}
	}
	return t
}

// touch adds the expected cost of the call on a table and, for a write, on those of its indexes that have a budget.
func (c *call) touch(name string, dir Direction, weight int64) {
	t := c.tableOf(name)
	c.add(t, nil, dir, weight)
	if dir == Write && t.split {
		t.mu.RLock()
		defer t.mu.RUnlock()
		for _, x := range t.indexes {
			if x.budgets[Write] != nil {
				c.add(t, x, Write, weight)
			}
		}
	}
}

// touchIndex adds a read of an index.
func (c *call) touchIndex(name string, index *string, weight int64) {
	t := c.tableOf(name)
	if index == nil || *index == "" {
		c.add(t, nil, Read, weight)
	} else {
		c.add(t, t.index(*index), Read, weight)
	}
}

// touchTransaction adds the writes of a transaction, which cost twice as much.
func (c *call) touchTransaction(items []types.TransactWriteItem) {
	for _, item := range items {
		switch {
		case item.Put != nil:
			c.touch(aws.ToString(item.Put.TableName), Write, 2*blocks(item.Put.Item))
		case item.Update != nil:
			c.touch(aws.ToString(item.Update.TableName), Write, 2*milli)
		case item.Delete != nil:
			c.touch(aws.ToString(item.Delete.TableName), Write, 2*milli)
		case item.ConditionCheck != nil:
			c.touch(aws.ToString(item.ConditionCheck.TableName), Write, 2*milli)
		}
	}
}

func (c *call) add(t *table, x *index, dir Direction, weight int64) {
	for i := range c.parts {
		if p := &c.parts[i]; p.t == t && p.x == x && p.dir == dir {
			p.weight += weight
			return
		}
	}
	c.parts = append(c.parts, part{t: t, x: x, dir: dir, weight: weight})
}

// claim turns the estimates into claims on the budgets, in the order of their rank.
func (c *call) claim() {
	for i := range c.parts {
		p := &c.parts[i]
		estimate := p.estimate(c.op)
		c.charge(p.budget(), estimate)
		c.charge(c.g.account[p.dir], estimate)
	}
	if len(c.claims) > 1 {
		slices.SortFunc(c.claims, func(a, b claim) int { return cmp.Compare(a.b.rank, b.b.rank) })
	}
}

func (c *call) charge(b *budget, amount int64) {
	if b == nil || b.implied && !b.lowered.Load() {
		return
	}
	for i := range c.claims {
		if c.claims[i].b == b {
			c.claims[i].estimate += amount
			return
		}
	}
	c.claims = append(c.claims, claim{b: b, estimate: amount})
}

// reporting returns what DynamoDB is to report: what the caller requests, but at least what the budgets need.
func (c *call) reporting(asked types.ReturnConsumedCapacity) types.ReturnConsumedCapacity {
	for _, p := range c.parts {
		if p.t.split {
			return types.ReturnConsumedCapacityIndexes
		}
	}
	if asked == types.ReturnConsumedCapacityIndexes {
		return asked
	}
	return types.ReturnConsumedCapacityTotal
}
