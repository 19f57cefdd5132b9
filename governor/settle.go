package governor

import (
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// settle charges what the call cost. Attempts that may or may not have been carried out cost the estimate.
func (c *call) settle(result any, err error) {
	slow := false
	if err == nil {
		c.reported(result)
	} else {
		slow = c.failed(err)
	}
	now := c.g.now()
	for i := range c.parts {
		p := &c.parts[i]
		cost := p.cost
		if err == nil && !p.known {
			cost = p.estimate(c.op) // it was not reported
		}
		if c.unknown > 0 {
			cost += int64(c.unknown) * p.estimate(c.op)
			p.known = false
		}
		c.spend(p.budget(), cost, p.known)
		c.spend(c.g.account[p.dir], cost, p.known)
	}
	for _, cl := range c.claims {
		if slow && cl.b.table != "" {
			// Nothing is given back: a throttled call must not be retried sooner.
			cl.estimate = min(cl.estimate, cl.cost)
		}
		cl.b.settle(now, cl.estimate, cl.cost, cl.known)
	}
}

// failed records what an error says about the cost, and reports whether it is throttling.
func (c *call) failed(err error) bool {
	var condition *types.ConditionalCheckFailedException
	var cancelled *types.TransactionCanceledException
	var conflict *types.TransactionConflictException
	switch {
	case errors.As(err, &condition):
		c.conditionFailed(condition)
	case errors.As(err, &cancelled), errors.As(err, &conflict):
		c.unknown++
	}
	_, slow := throttled(err)
	return slow
}

func (c *call) spend(b *budget, cost int64, known bool) {
	if b == nil {
		return
	}
	for i := range c.claims {
		if cl := &c.claims[i]; cl.b == b {
			cl.cost += cost
			cl.known = known
			return
		}
	}
	c.claims = append(c.claims, claim{b: b, cost: cost, known: known})
}

// reported records the consumption that a successful call reports.
func (c *call) reported(result any) {
	switch out := result.(type) {
	case *dynamodb.GetItemOutput:
		c.consumed(out.ConsumedCapacity)
	case *dynamodb.PutItemOutput:
		c.consumed(out.ConsumedCapacity)
	case *dynamodb.UpdateItemOutput:
		c.consumed(out.ConsumedCapacity)
	case *dynamodb.DeleteItemOutput:
		c.consumed(out.ConsumedCapacity)
	case *dynamodb.QueryOutput:
		c.consumed(out.ConsumedCapacity)
	case *dynamodb.ScanOutput:
		c.consumed(out.ConsumedCapacity)
	case *dynamodb.ExecuteStatementOutput:
		c.consumed(out.ConsumedCapacity)
	case *dynamodb.BatchGetItemOutput:
		c.consumedAll(out.ConsumedCapacity)
		for name, keys := range out.UnprocessedKeys {
			c.unprocessed(name, len(keys.Keys))
		}
	case *dynamodb.BatchWriteItemOutput:
		c.consumedAll(out.ConsumedCapacity)
		for name, writes := range out.UnprocessedItems {
			c.unprocessed(name, len(writes))
		}
	case *dynamodb.TransactGetItemsOutput:
		c.consumedAll(out.ConsumedCapacity)
	case *dynamodb.TransactWriteItemsOutput:
		c.consumedAll(out.ConsumedCapacity)
	case *dynamodb.ExecuteTransactionOutput:
		c.consumedAll(out.ConsumedCapacity)
	case *dynamodb.BatchExecuteStatementOutput:
		c.consumedAll(out.ConsumedCapacity)
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.known && p.weight > 0 && (p.cost > 0 || p.x != nil) {
			p.ratio(c.op).observe(float64(p.cost) / float64(p.weight))
		}
	}
}

func (c *call) consumedAll(all []types.ConsumedCapacity) {
	for i := range all {
		c.consumed(&all[i])
	}
}

// consumed records the consumption on one table: that of indexes with budgets on these indexes, the rest on the table,
// or on the index that was read.
func (c *call) consumed(cc *types.ConsumedCapacity) {
	if cc == nil {
		return
	}
	t := c.tableOf(aws.ToString(cc.TableName))
	if cc.TableName == nil && len(c.parts) > 0 {
		t = c.parts[0].t
	}
	for i := range c.parts {
		if c.parts[i].t == t || c.parts[i].t.name == "" { // "" for a statement that was not understood
			c.parts[i].known = true
		}
	}
	dir := c.dir
	for i := range c.parts {
		if c.parts[i].t == t {
			dir = c.parts[i].dir
			break
		}
	}
	read, write := units(dir, cc.CapacityUnits, cc.ReadCapacityUnits, cc.WriteCapacityUnits)
	for name, x := range cc.GlobalSecondaryIndexes {
		index := t.index(name)
		xr, xw := units(dir, x.CapacityUnits, x.ReadCapacityUnits, x.WriteCapacityUnits)
		if index.budgets[Read] != nil {
			c.cost(t, index, Read, xr)
			read -= xr
		}
		if index.budgets[Write] != nil {
			c.cost(t, index, Write, xw)
			write -= xw
		}
	}
	c.cost(t, nil, Read, read)
	c.cost(t, nil, Write, write)
}

// units splits the consumption into reads and writes. If it is not split, it has the operation's direction.
func units(dir Direction, all, read, write *float64) (r, w int64) {
	if read == nil && write == nil {
		read, write = all, nil
		if dir == Write {
			read, write = nil, all
		}
	}
	return thousandths(read), thousandths(write)
}

func thousandths(units *float64) int64 { return int64(aws.ToFloat64(units)*milli + 0.5) }

// cost adds to the part that a cost belongs to. A table of which only an index is read has no part of its own.
func (c *call) cost(t *table, x *index, dir Direction, amount int64) {
	if amount <= 0 {
		return
	}
	only := -1
	for i := range c.parts {
		p := &c.parts[i]
		if p.t != t || p.dir != dir {
			continue
		}
		if p.x == x {
			only = i
			break
		}
		if x == nil && p.x != nil && p.x.budgets[dir] == nil {
			only = i
		}
	}
	if only < 0 {
		c.parts = append(c.parts, part{t: t, x: x, dir: dir, known: true})
		only = len(c.parts) - 1
	}
	c.parts[only].cost += amount
}

// conditionFailed charges a failed condition: the item's size, which the error contains if the caller requested it;
// otherwise the expected cost of the write. Indexes are not written.
func (c *call) conditionFailed(failed *types.ConditionalCheckFailedException) {
	for i := range c.parts {
		p := &c.parts[i]
		p.known = true
		switch {
		case p.x != nil:
		case len(failed.Item) > 0:
			p.cost = max(blocks(failed.Item), p.weight)
		default:
			p.cost = max(p.weight, p.estimate(c.op))
			p.known = false
		}
	}
}

// unprocessed handles the throttling of a part of a batch. What was not carried out costs nothing.
func (c *call) unprocessed(name string, n int) {
	if n > 0 {
		c.cutAll(c.g.now(), c.g.tableOf(name).name)
	}
}
