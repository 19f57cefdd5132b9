package table

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// maxTransaction is DynamoDB's limit on the items of a transaction.
const maxTransaction = 100

// Commit implements [store.Catalog] as one transaction, together with the epochs of the namespaces that change. All
// attempts carry the same token, so that an attempt whose response was lost is not taken for another commit. A commit
// with more than 100 writes and changed namespaces together is an error: [store.MaxWrites] writes may change at most 4
// namespaces.
func (c *Catalog) Commit(ctx context.Context, writes ...store.Write) error {
	if err := c.t.Ready(ctx); err != nil {
		return err
	}
	raised, err := checkWrites(writes)
	if err != nil {
		return err
	}
	now := c.t.Clock()
	in := &dynamodb.TransactWriteItemsInput{ClientRequestToken: aws.String(rand.Text())}
	for i := range writes {
		in.TransactItems = append(in.TransactItems, c.t.writeItem(&writes[i], now))
	}
	for _, ns := range raised {
		in.TransactItems = append(in.TransactItems, c.t.raiseEpoch(ns))
	}
	about := writes[0].Record.Key.String()
	ctx, cancel := c.t.Within(ctx)
	defer cancel()
	err = c.t.Attempt(ctx, func(ctx context.Context) error {
		_, err := c.t.cfg.Client.TransactWriteItems(ctx, in)
		return err
	})
	for i, reason := range Canceled(err) {
		if i < len(writes) && aws.ToString(reason.Code) == ReasonCondition {
			return c.t.conflict(&writes[i], reason.Item, now)
		}
	}
	for _, ns := range raised { // also after an error: the commit may have been applied
		c.t.epochs.raised(ns)
	}
	return c.t.Trouble("commit", about, err)
}

// checkWrites returns the namespaces in which a record changes.
func checkWrites(writes []store.Write) ([]string, error) {
	if err := store.CheckWrites(writes); err != nil {
		return nil, err
	}
	seen := make(map[store.Key]bool, len(writes))
	raised := make(map[string]bool)
	for i := range writes {
		w := &writes[i]
		k := w.Record.Key
		if seen[k] || k.Namespace == "" || k.Kind == "" || w.Check && w.Delete {
			return nil, store.ErrInvalid
		}
		if err := checkKey("commit", k, w.Record.Parent); err != nil {
			return nil, err
		}
		seen[k] = true
		if !w.Check {
			raised[k.Namespace] = true
		}
	}
	if n := len(writes) + len(raised); n > maxTransaction {
		return nil, &store.BoundError{
			Bound: "writes and changed namespaces in one commit", Max: maxTransaction, Have: n,
		}
	}
	return slices.Sorted(maps.Keys(raised)), nil
}

// writeItem is one write of a commit. An expired record counts as missing, even if it is still in the table.
func (t *Table) writeItem(w *store.Write, now time.Time) types.TransactWriteItem {
	key := RecordKey(w.Record.Key).Item()
	names := map[string]string{"#v": AttrVersion, "#x": attrExpires}
	values := map[string]types.AttributeValue{":now": Num(unixNano(now))}
	cond := "(attribute_not_exists(#v) OR #x <= :now)"
	switch version := w.Record.Version; {
	case version > 0:
		cond = "#v = :v AND (attribute_not_exists(#x) OR #x > :now)"
		values[":v"] = Num(version)
	case w.Delete: // deleting a record that must not exist always fails
		cond = "attribute_exists(#v) AND attribute_not_exists(#v)"
		delete(names, "#x")
		values = nil
	}
	const old = types.ReturnValuesOnConditionCheckFailureAllOld
	switch {
	case w.Check:
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
			TableName: &t.cfg.Table, Key: key, ConditionExpression: &cond,
			ExpressionAttributeNames: names, ExpressionAttributeValues: values,
			ReturnValuesOnConditionCheckFailure: old,
		}}
	case w.Delete:
		return types.TransactWriteItem{Delete: &types.Delete{
			TableName: &t.cfg.Table, Key: key, ConditionExpression: &cond,
			ExpressionAttributeNames: names, ExpressionAttributeValues: values,
			ReturnValuesOnConditionCheckFailure: old,
		}}
	}
	r := w.Record
	r.Version++
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &t.cfg.Table, Item: recordItem(&r), ConditionExpression: &cond,
		ExpressionAttributeNames: names, ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: old,
	}}
}

func (t *Table) raiseEpoch(namespace string) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &t.cfg.Table, Key: epochKey(namespace).Item(),
		UpdateExpression:          aws.String("ADD #n :one"),
		ExpressionAttributeNames:  map[string]string{"#n": AttrNumber},
		ExpressionAttributeValues: map[string]types.AttributeValue{":one": Num(1)},
	}}
}

// conflict returns the error of a write whose condition failed, given the item found instead.
func (t *Table) conflict(w *store.Write, attrs map[string]types.AttributeValue, now time.Time) error {
	r, err := t.parseRecord(w.Record.Key, attrs, now)
	if err != nil {
		return err
	}
	return &store.ConflictError{Key: w.Record.Key, Have: r.Version, Want: w.Record.Version}
}
