package dynamotest

import (
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// cost is what one call consumes of a table and of its indexes, in capacity units.
type cost struct {
	table   float64
	indexes map[string]float64
}

// add adds n times the cost d.
func (c *cost) add(d cost, n float64) {
	c.table += d.table * n
	for name, units := range d.indexes {
		if c.indexes == nil {
			c.indexes = make(map[string]float64)
		}
		c.indexes[name] += units
	}
}

func (c cost) total() float64 {
	sum := c.table
	for _, units := range c.indexes {
		sum += units
	}
	return sum
}

// blocks returns how many blocks of a size the bytes need, at least one.
func blocks(bytes, size int) float64 { return float64(max(1, (bytes+size-1)/size)) }

func writeUnits(bytes int) float64 { return blocks(bytes, 1<<10) }

func readUnits(bytes int, consistent *bool) float64 {
	units := blocks(bytes, 4<<10)
	if !aws.ToBool(consistent) {
		units /= 2
	}
	return units
}

// writeCost returns the cost of replacing an item; either may be nil. An index costs a write if its entry changes,
// and two if the entry moves.
func (t *table) writeCost(old, replaced item) cost {
	c := cost{table: writeUnits(max(ItemSize(old), ItemSize(replaced)))}
	for name, idx := range t.indexes {
		was, is := idx.entry(old), idx.entry(replaced)
		var units float64
		switch {
		case was == nil && is == nil || was != nil && is != nil && maps.EqualFunc(was, is, equal):
			continue
		case was == nil || is == nil || idx.key.compare(was, is) == 0:
			units = writeUnits(max(ItemSize(was), ItemSize(is)))
		default:
			units = writeUnits(ItemSize(was)) + writeUnits(ItemSize(is))
		}
		c.add(cost{indexes: map[string]float64{name: units}}, 1)
	}
	return c
}

// report returns the requested report of a cost, or nil if none was requested.
func (t *table) report(asked types.ReturnConsumedCapacity, c cost) *types.ConsumedCapacity {
	if asked != types.ReturnConsumedCapacityTotal && asked != types.ReturnConsumedCapacityIndexes {
		return nil
	}
	out := &types.ConsumedCapacity{TableName: new(t.name), CapacityUnits: new(c.total())}
	if asked == types.ReturnConsumedCapacityIndexes {
		out.Table = &types.Capacity{CapacityUnits: new(c.table)}
		for name, units := range c.indexes {
			if out.GlobalSecondaryIndexes == nil {
				out.GlobalSecondaryIndexes = make(map[string]types.Capacity)
			}
			out.GlobalSecondaryIndexes[name] = types.Capacity{CapacityUnits: new(units)}
		}
	}
	return out
}
