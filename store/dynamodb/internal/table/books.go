package table

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
	"github.com/weirlimits/weir/store/internal/ledger"
)

// Books keeps the accounts and windows of a table: the back end of its ledger.
type Books struct {
	t         *Table
	retention store.Retention
	part      int // of the sums that many buckets share; books with different parts do not contend
	limitName func(string) string
	parents   ledger.Parents
}

// NewBooks returns the books of a table. limitName returns the limit that windows name, given the name of a counter.
func NewBooks(t *Table, r store.Retention, part int, limitName func(string) string) *Books {
	b := &Books{t: t, retention: r, part: part % UsageParts, limitName: limitName}
	b.parents = ledger.Parents{Look: b.lookUp, Keep: time.Minute, Now: t.Clock}
	return b
}

// Account is the account of a source of usage: a shard of a bucket, or a process.
type Account struct {
	Key  Key
	Late int64         // see [ledger.Source.See]
	Keep time.Duration // how long it outlives its last write

	version uint64 // 0: none stored
	seen    ledger.Source
	stored  bool
}

// Booking is what there is to book for an account.
type Booking = ledger.Entry[Account]

// Poison is the error for what can never be read from a stream. Usually, an item was edited by hand.
func Poison(key Key, err error) error {
	return &store.Error{
		Op: "stream", Key: key.String(), Err: fmt.Errorf("%w: %w", ledger.ErrDamaged, err),
		Hint: "correct the item: its next record counts what this one would have",
	}
}

// Room implements [ledger.Backend]. A transaction takes 100 items.
func (b *Books) Room() (accounts, items int) { return MaxBatch, 100 }

// Read implements [ledger.Backend].
func (b *Books) Read(ctx context.Context, entries []*Booking) error {
	keys := make([]Key, len(entries))
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
		raw, err := Field(attrs, AttrValue, Binary)
		if err == nil {
			a.version, err = Field(attrs, AttrVersion, Unsigned)
		}
		if err == nil {
			err = a.seen.Decode(raw)
		}
		if err != nil {
			e.Err = Poison(a.Key, err)
		}
	}
	return nil
}

// See implements [ledger.Backend].
func (b *Books) See(e *Booking, readings []ledger.Reading) ([]ledger.Delta, bool) {
	a := &e.Account
	deltas := a.seen.See(readings, a.Late)
	a.stored = len(deltas) > 0 || a.seen.Begun()
	return deltas, a.stored
}

// Parents implements [ledger.Backend].
func (b *Books) Parents(ctx context.Context, entities []store.Key) ([]string, error) {
	return b.parents.Of(ctx, entities)
}

func (b *Books) lookUp(ctx context.Context, entities []store.Key) ([]string, error) {
	keys := make([]Key, len(entities))
	for i, k := range entities {
		keys[i] = RecordKey(k)
	}
	found, err := b.t.BatchGet(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("read parents: %w", err)
	}
	out := make([]string, len(entities))
	for i, k := range keys {
		if v, ok := found[k][AttrParents]; ok {
			out[i], _ = Text(v)
		}
	}
	return out, nil
}

// Apply implements [ledger.Backend], in one transaction.
func (b *Books) Apply(ctx context.Context, entries []*Booking, sums ledger.Sums) error {
	in := &dynamodb.TransactWriteItemsInput{}
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
	ctx, cancel := b.t.Within(ctx)
	defer cancel()
	err := b.t.Attempt(ctx, func(ctx context.Context) error {
		_, err := b.t.cfg.Client.TransactWriteItems(ctx, in, Once...)
		return err
	})
	key := entries[0].Account.Key
	switch {
	case canceledFor(err, ReasonCondition):
		return ledger.ErrChanged
	case unwritable(err):
		return Poison(key, err)
	}
	return b.t.Trouble("usage", key.String(), err)
}

func (b *Books) put(a *Account) *types.Put {
	it := a.Key.Item()
	it[AttrVersion] = Num(a.version + 1)
	it[AttrValue] = &types.AttributeValueMemberB{Value: a.seen.Append(nil)}
	it[AttrTTL] = Num(b.t.Clock().Add(a.Keep).Unix())
	p := &types.Put{TableName: &b.t.cfg.Table, Item: it}
	if a.version == 0 {
		p.ConditionExpression = aws.String("attribute_not_exists(#p)")
		p.ExpressionAttributeNames = map[string]string{"#p": AttrPK}
		return p
	}
	p.ConditionExpression = aws.String("#v = :v")
	p.ExpressionAttributeNames = map[string]string{"#v": AttrVersion}
	p.ExpressionAttributeValues = map[string]types.AttributeValue{":v": Num(a.version)}
	return p
}

// update returns the update of a window, nil if nothing changes.
func (b *Books) update(w ledger.Window, counts []store.LimitFigures) *types.Update {
	u := &types.Update{
		TableName: &b.t.cfg.Table, Key: b.key(w).Item(),
		ExpressionAttributeNames:  make(map[string]string),
		ExpressionAttributeValues: make(map[string]types.AttributeValue),
	}
	var adds []string
	for _, c := range b.named(counts) {
		ledger.Letters(&c.Figures, func(letter string, n int64) {
			at := strconv.Itoa(len(adds))
			adds = append(adds, "#"+at+" :"+at)
			u.ExpressionAttributeNames["#"+at], u.ExpressionAttributeValues[":"+at] = letter+"_"+c.Limit, Num(n)
		})
	}
	if len(adds) == 0 {
		return nil
	}
	expr := "ADD " + strings.Join(adds, ", ")
	if keep := ledger.Keep(b.retention, w.Type); keep >= 0 {
		expr += " SET #t = :t"
		u.ExpressionAttributeNames["#t"] = AttrTTL
		u.ExpressionAttributeValues[":t"] = Num(w.Type.Next(time.Unix(w.Start, 0).UTC()).Add(keep).Unix())
	}
	u.UpdateExpression = &expr
	return u
}

// named returns counts by the names that windows have for limits. Undone takes, which are what a bucket as a whole had
// returned, are subtracted from its requests.
func (b *Books) named(counts []store.LimitFigures) []store.LimitFigures {
	var out []store.LimitFigures
	for _, c := range counts {
		if c.Limit == "" {
			c.Requests, c.Returned = c.Requests-c.Returned, 0
		}
		c.Limit = b.limitName(c.Limit)
		out = store.MergeFigures(out, []store.LimitFigures{c})
	}
	return out
}

func (b *Books) key(w ledger.Window) Key {
	part := b.part
	if w.Of == store.OfBucket {
		part = partOf(w.ID)
	}
	return Key{
		PK: usagePartition(w.Namespace, w.Type, w.Of, part), SK: UsageSort(w.Type, time.Unix(w.Start, 0), w.ID, w.Sub),
	}
}

// Since returns the minute from which usage is kept: the minute in which it was first called for the table.
func (b *Books) Since(ctx context.Context) (int64, error) {
	ctx, cancel := b.t.Within(ctx)
	defer cancel()
	it := meteredKey().Item()
	it[AttrNumber] = Num(ledger.MinuteOf(b.t.Clock()))
	err := b.t.Attempt(ctx, func(ctx context.Context) error {
		_, err := b.t.cfg.Client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &b.t.cfg.Table, Item: it, ConditionExpression: aws.String("attribute_not_exists(#p)"),
			ExpressionAttributeNames:            map[string]string{"#p": AttrPK},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}, Once...)
		return err
	})
	var there *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &there):
		it = there.Item
	case err != nil:
		return 0, b.t.Trouble("usage", meteredKey().String(), err)
	}
	n, err := Field(it, AttrNumber, Number)
	if err != nil {
		return 0, b.t.Damaged(meteredKey(), err)
	}
	return n, nil
}

// canceledFor reports whether a transaction was cancelled for a reason.
func canceledFor(err error, reason string) bool {
	return slices.ContainsFunc(Canceled(err), func(r types.CancellationReason) bool {
		return aws.ToString(r.Code) == reason
	})
}

// unwritable reports whether DynamoDB will never accept a transaction as it is, for instance because a name that a
// process reported makes a key too long, or because an account is too large.
func unwritable(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == CodeValidation || canceledFor(err, ReasonValidation)
}
