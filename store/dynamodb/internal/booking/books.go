package booking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// books keeps the accounts and windows of a table: the back end of its ledger.
type books struct {
	table.Metering

	t       *table.Table
	part    int // of the sums that many buckets share; books with different parts do not contend
	parents ledger.Parents
	names   names
}

// newBooks returns the books of a table in which m is booked.
func newBooks(t *table.Table, m table.Metering, part int) *books {
	b := &books{Metering: m, t: t, part: part % table.UsageParts}
	b.names.of = make(map[ledger.Window]*named)
	b.parents = ledger.Parents{Look: b.lookUp, Keep: time.Minute, Now: t.Clock}
	return b
}

// Account is the account of a source of usage: a shard of a bucket, or a process.
type Account struct {
	Key  table.Key
	Late int64         // see [ledger.Source.See]
	Keep time.Duration // how long it outlives its last write

	version uint64 // 0: none stored
	seen    ledger.Source
	stored  bool
}

// Booking is what there is to book for an account.
type Booking = ledger.Entry[Account]

// poison is the error for what can never be read from a stream. Usually, an item was edited by hand.
func poison(key table.Key, err error) error {
	return &store.Error{
		Op: "stream", Key: key.String(), Err: fmt.Errorf("%w: %w", ledger.ErrDamaged, err),
		Hint: "correct the item: its next record counts what this one would have",
	}
}

// Room implements [ledger.Backend]. A transaction takes 100 items.
func (b *books) Room() (accounts, items int) { return table.MaxBatch, 100 }

// Read implements [ledger.Backend].
func (b *books) Read(ctx context.Context, entries []*Booking) error {
	keys := make([]table.Key, len(entries))
	for i, e := range entries {
		keys[i] = e.Account.Key
	}
	found, err := b.t.BatchGet(ctx, keys)
	if err != nil {
		return err
	}
	for _, e := range entries {
		a := &e.Account
		a.version, a.seen = 0, ledger.Source{}
		attrs := found[a.Key]
		if attrs == nil {
			continue
		}
		raw, err := table.Field(attrs, table.AttrValue, table.Binary)
		if err == nil {
			a.version, err = table.Field(attrs, table.AttrVersion, table.Unsigned)
		}
		if err == nil {
			err = a.seen.Decode(raw)
		}
		if err != nil {
			e.Err = poison(a.Key, err)
		}
	}
	return nil
}

// See implements [ledger.Backend].
func (b *books) See(e *Booking, readings []ledger.Reading) ([]ledger.Delta, bool) {
	a := &e.Account
	deltas := a.seen.See(readings, a.Late)
	a.stored = len(deltas) > 0 || a.seen.Begun()
	return ledger.Only(b.Windows, deltas), a.stored
}

// Parents implements [ledger.Backend].
func (b *books) Parents(ctx context.Context, entities []store.Key) ([]string, error) {
	return b.parents.Of(ctx, entities)
}

func (b *books) lookUp(ctx context.Context, entities []store.Key) ([]string, error) {
	keys := make([]table.Key, len(entities))
	for i, k := range entities {
		keys[i] = table.RecordKey(k)
	}
	found, err := b.t.BatchGet(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("read parents: %w", err)
	}
	out := make([]string, len(entities))
	for i, k := range keys {
		if v, ok := found[k][table.AttrParents]; ok {
			out[i], _ = table.Text(v)
		}
	}
	return out, nil
}

// Apply implements [ledger.Backend], in one transaction.
func (b *books) Apply(ctx context.Context, entries []*Booking, sums ledger.Sums) error {
	ctx, cancel := b.t.Within(ctx)
	defer cancel()
	err := b.apply(ctx, entries, sums, false)
	if errors.Is(err, ledger.ErrDamaged) && len(entries) == 1 { // a window of the bucket may be full
		err = b.apply(ctx, entries, sums, true)
	}
	return err
}

// manyUnits is how many units more than two for each item a transaction consumes if a window in it is large.
const manyUnits = 200

// apply makes one attempt. With all set, it bounds all windows.
func (b *books) apply(ctx context.Context, entries []*Booking, sums ledger.Sums, all bool) error {
	if err := b.bound(ctx, entries, sums, all); err != nil {
		return err
	}
	in := &dynamodb.TransactWriteItemsInput{ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal}
	for _, e := range entries {
		if e.Account.stored {
			in.TransactItems = append(in.TransactItems, types.TransactWriteItem{Put: b.put(&e.Account)})
		}
	}
	for w, counts := range sums {
		if u := b.update(w, counts); u != nil {
			in.TransactItems = append(in.TransactItems, types.TransactWriteItem{Update: u})
		}
	}
	if len(in.TransactItems) == 0 {
		return nil // nothing new
	}
	err := b.t.Attempt(ctx, func(ctx context.Context) error {
		out, err := b.t.Client().TransactWriteItems(ctx, in, table.Once...)
		if err == nil && consumed(out) > float64(2*len(in.TransactItems)+manyUnits) {
			b.names.large(sums)
		}
		return err
	})
	key := entries[0].Account.Key
	switch {
	case canceledFor(err, table.ReasonCondition):
		return ledger.ErrChanged
	case unwritable(err):
		return poison(key, err)
	}
	return b.t.Trouble("usage", key.String(), err)
}

// consumed returns the units that a transaction has consumed; 0 if it is not known.
func consumed(out *dynamodb.TransactWriteItemsOutput) (units float64) {
	for _, c := range out.ConsumedCapacity {
		units += aws.ToFloat64(c.CapacityUnits)
	}
	return units
}

func (b *books) put(a *Account) *types.Put {
	it := a.Key.Item()
	it[table.AttrVersion] = table.Num(a.version + 1)
	it[table.AttrValue] = &types.AttributeValueMemberB{Value: a.seen.Append(nil)}
	it[table.AttrTTL] = table.Num(b.t.Clock().Add(a.Keep).Unix())
	p := &types.Put{TableName: aws.String(b.t.Name()), Item: it}
	if a.version == 0 {
		p.ConditionExpression = aws.String("attribute_not_exists(#p)")
		p.ExpressionAttributeNames = map[string]string{"#p": table.AttrPK}
		return p
	}
	p.ConditionExpression = aws.String("#v = :v")
	p.ExpressionAttributeNames = map[string]string{"#v": table.AttrVersion}
	p.ExpressionAttributeValues = map[string]types.AttributeValue{":v": table.Num(a.version)}
	return p
}

// update returns the update of a window, nil if nothing changes. Undone takes, which are what a bucket as a whole had
// returned, are subtracted from its requests.
func (b *books) update(w ledger.Window, counts []store.LimitFigures) *types.Update {
	u := &types.Update{
		TableName: aws.String(b.t.Name()), Key: b.key(w).Item(),
		ExpressionAttributeNames:  make(map[string]string),
		ExpressionAttributeValues: make(map[string]types.AttributeValue),
	}
	var adds []string
	for _, c := range counts {
		if c.Limit == "" {
			c.Requests, c.Returned = c.Requests-c.Returned, 0
		}
		ledger.Letters(&c.Figures, func(letter string, n int64) {
			at := strconv.Itoa(len(adds))
			adds = append(adds, "#"+at+" :"+at)
			u.ExpressionAttributeNames["#"+at], u.ExpressionAttributeValues[":"+at] = letter+"_"+c.Limit, table.Num(n)
		})
	}
	if len(adds) == 0 {
		return nil
	}
	expr := "ADD " + strings.Join(adds, ", ")
	if keep := ledger.Keep(b.Retention, w.Type); keep >= 0 {
		expr += " SET #t = :t"
		u.ExpressionAttributeNames["#t"] = table.AttrTTL
		u.ExpressionAttributeValues[":t"] = table.Num(w.Type.Next(time.Unix(w.Start, 0).UTC()).Add(keep).Unix())
	}
	u.UpdateExpression = &expr
	return u
}

func (b *books) key(w ledger.Window) table.Key {
	part := b.part
	if w.Of == store.OfBucket {
		part = table.PartOf(w.ID)
	}
	return table.Key{
		PK: table.UsagePartition(w.Namespace, w.Type, w.Of, part),
		SK: table.UsageSort(w.Type, time.Unix(w.Start, 0), w.ID, w.Sub),
	}
}

// canceledFor reports whether a transaction was cancelled for a reason.
func canceledFor(err error, reason string) bool {
	return slices.ContainsFunc(table.Canceled(err), func(r types.CancellationReason) bool {
		return aws.ToString(r.Code) == reason
	})
}

// unwritable reports whether DynamoDB will never accept a transaction as it is, for instance because a name that a
// process reported makes a key too long, or because an account is too large.
func unwritable(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == table.CodeValidation || canceledFor(err, table.ReasonValidation)
}
