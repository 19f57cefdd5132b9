package dynamodb

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// DynamoDB's limits on a transaction.
const (
	maxTransaction     = 100
	maxTransactionSize = 4 << 20
)

// Commit implements [store.Catalog] as one transaction, together with the epochs of the namespaces that change. All
// attempts carry the same token, so that an attempt whose response was lost is not taken for another commit. A commit of
// more than 4 MB is an error, and so is one with more than 100 writes and changed namespaces together: [store.MaxWrites]
// writes may change at most 4 namespaces.
func (s *Store) Commit(ctx context.Context, writes ...store.Write) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	raised, err := checkWrites(writes)
	if err != nil {
		return err
	}
	now := s.clock()
	in := &dynamodb.TransactWriteItemsInput{ClientRequestToken: aws.String(rand.Text())}
	for i := range writes {
		in.TransactItems = append(in.TransactItems, s.writeItem(&writes[i], now))
	}
	for _, ns := range raised {
		in.TransactItems = append(in.TransactItems, s.raiseEpoch(ns))
	}
	about := writes[0].Record.Key.String()
	if n := transactionSize(in.TransactItems); n > maxTransactionSize {
		return &store.Error{
			Op: "commit", Key: about, Hint: "change fewer records at once",
			Err: fmt.Errorf("the transaction has %d bytes; DynamoDB allows %d", n, maxTransactionSize),
		}
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	err = s.attempt(ctx, func(ctx context.Context) error {
		_, err := s.cfg.Client.TransactWriteItems(ctx, in)
		return err
	})
	for i, reason := range canceled(err) {
		if i < len(writes) && aws.ToString(reason.Code) == reasonCondition {
			return s.conflict(&writes[i], reason.Item, now)
		}
	}
	for _, ns := range raised { // also after an error: the commit may have been applied
		s.epochs.raised(ns)
	}
	return s.trouble("commit", about, err)
}

// checkWrites returns the namespaces in which a record changes.
func checkWrites(writes []store.Write) ([]string, error) {
	if len(writes) == 0 || len(writes) > store.MaxWrites {
		return nil, store.ErrInvalid
	}
	seen := make(map[store.Key]bool, len(writes))
	raised := make(map[string]bool)
	for i := range writes {
		w := &writes[i]
		k := w.Record.Key
		if seen[k] || k.Namespace == "" || k.Kind == "" || len(w.Record.Value) > store.MaxValue || w.Check && w.Delete {
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
		return nil, invalid("%d writes in %d namespaces; DynamoDB allows %d of both together", len(writes), len(raised), maxTransaction)
	}
	return slices.Sorted(maps.Keys(raised)), nil
}

// writeItem is one write of a commit. An expired record counts as missing, even if it is still in the table.
func (s *Store) writeItem(w *store.Write, now time.Time) types.TransactWriteItem {
	key := recordKey(w.Record.Key).item()
	names := map[string]string{"#v": attrVersion, "#x": attrExpires}
	values := map[string]types.AttributeValue{":now": num(unixNano(now))}
	cond := "(attribute_not_exists(#v) OR #x <= :now)"
	switch version := w.Record.Version; {
	case version > 0:
		cond = "#v = :v AND (attribute_not_exists(#x) OR #x > :now)"
		values[":v"] = num(version)
	case w.Delete: // deleting a record that must not exist always fails
		cond = "attribute_exists(#v) AND attribute_not_exists(#v)"
		delete(names, "#x")
		values = nil
	}
	const old = types.ReturnValuesOnConditionCheckFailureAllOld
	switch {
	case w.Check:
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
			TableName: &s.cfg.Table, Key: key, ConditionExpression: &cond,
			ExpressionAttributeNames: names, ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: old,
		}}
	case w.Delete:
		return types.TransactWriteItem{Delete: &types.Delete{
			TableName: &s.cfg.Table, Key: key, ConditionExpression: &cond,
			ExpressionAttributeNames: names, ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: old,
		}}
	}
	r := w.Record
	r.Version++
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &s.cfg.Table, Item: recordItem(&r), ConditionExpression: &cond,
		ExpressionAttributeNames: names, ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: old,
	}}
}

func (s *Store) raiseEpoch(namespace string) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.cfg.Table, Key: epochKey(namespace).item(),
		UpdateExpression:         aws.String("ADD #n :one"),
		ExpressionAttributeNames: map[string]string{"#n": attrNumber}, ExpressionAttributeValues: map[string]types.AttributeValue{":one": num(1)},
	}}
}

func transactionSize(writes []types.TransactWriteItem) int {
	n := 0
	for _, w := range writes {
		switch {
		case w.Put != nil:
			n += itemSize(w.Put.Item)
		case w.Delete != nil:
			n += itemSize(w.Delete.Key)
		case w.ConditionCheck != nil:
			n += itemSize(w.ConditionCheck.Key)
		case w.Update != nil:
			n += itemSize(w.Update.Key)
		}
	}
	return n
}

// conflict returns the error of a write whose condition failed, given the item found instead.
func (s *Store) conflict(w *store.Write, attrs map[string]types.AttributeValue, now time.Time) error {
	r, err := s.parseRecord(w.Record.Key, attrs, now)
	if err != nil {
		return err
	}
	return &store.ConflictError{Key: w.Record.Key, Have: r.Version, Want: w.Record.Version}
}
