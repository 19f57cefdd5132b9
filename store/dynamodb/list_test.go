package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

func (d *desk) ids(t testing.TB, q store.Query) string {
	t.Helper()
	var ids []string
	for {
		page, err := d.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			ids = append(ids, r.Key.ID)
		}
		if q.After = page.Next; q.After == "" {
			return strings.Join(ids, " ")
		}
	}
}

func child(id, parent string, version uint64) store.Write {
	w := put(entity(id), version, id)
	w.Record.Parent = parent
	return w
}

// TestListStaleIndex checks that entries of an index that lags behind are checked against the table.
func TestListStaleIndex(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.Commit(t.Context(), child("a", "p", 0), child("b", "p", 0), child("c", "p", 0), child("d", "p", 0)); err != nil {
		t.Fatal(err)
	}
	byParent := store.Query{Namespace: "n", Kind: store.KindEntity, Parent: "p"}
	all := store.Query{Namespace: "n", Kind: store.KindEntity, Max: 2}
	lagging := make(map[string]*sdk.QueryOutput)
	d.spy.query = func(ctx context.Context, in *sdk.QueryInput) (*sdk.QueryOutput, error) {
		key := aws.ToString(in.IndexName) + in.ExpressionAttributeValues[":h"].(*types.AttributeValueMemberS).Value
		if out := lagging[key]; out != nil {
			return out, nil
		}
		out, err := d.client.Query(ctx, in)
		lagging[key] = out
		return out, err
	}
	if got := d.ids(t, byParent); got != "a b c d" {
		t.Fatalf("children %q", got)
	}
	moved := child("b", "q", 1)
	gone := store.Write{Record: store.Record{Key: entity("c"), Version: 1}, Delete: true}
	if err := d.Commit(t.Context(), moved, gone, child("d", "p", 1)); err != nil {
		t.Fatal(err)
	}
	if got := d.ids(t, byParent); got != "a d" {
		t.Errorf("children %q, want a and d", got)
	}
	page, err := d.List(t.Context(), byParent)
	if err != nil || len(page.Records) != 2 || page.Records[1].Version != 2 {
		t.Errorf("page %+v, %v: want d as it is now", page, err)
	}
	d.spy.query = nil
	if got := d.ids(t, all); got != "a b d" {
		t.Errorf("all %q", got)
	}
}

// TestListConsistent checks that records that lie side by side are listed by one consistent read, and that the list shows
// what was just committed.
func TestListConsistent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, k := range []store.Key{
		{Namespace: store.Registry, Kind: store.KindNamespace, ID: "blue"},
		{Namespace: store.Registry, Kind: store.KindNamespaceID, ID: "n"},
		{Namespace: store.Registry, Kind: store.KindSecret, ID: "x"},
		{Namespace: "n", Kind: store.KindSystem},
		{Namespace: "n", Kind: store.KindEntityLimits, ID: "a", Sub: "api"},
		{Namespace: "n", Kind: store.KindRevision, ID: "m", Sub: "0001"},
		{Namespace: "n", Kind: store.KindRevisionText, ID: "m", Sub: "0001-0"},
		{Namespace: "n", Kind: store.KindAudit, ID: "0001", Sub: "entity:a"},
	} {
		if err := d.Commit(t.Context(), put(k, 0, "x")); err != nil {
			t.Fatal(err)
		}
		q := store.Query{Namespace: k.Namespace, Kind: k.Kind, ID: k.ID}
		switch {
		case k.Kind == store.KindAudit:
			q.ID, q.Sub = "", k.Sub
		case k.Namespace == store.Registry:
			q.ID = ""
		}
		d.spy.query = func(ctx context.Context, in *sdk.QueryInput) (*sdk.QueryOutput, error) {
			if in.IndexName != nil || !aws.ToBool(in.ConsistentRead) {
				t.Errorf("%+v read index %q, consistent %t", q, aws.ToString(in.IndexName), aws.ToBool(in.ConsistentRead))
			}
			return d.client.Query(ctx, in)
		}
		queries, gets := d.spy.queries.Load(), d.spy.gets.Load()
		page, err := d.List(t.Context(), q)
		if err != nil || len(page.Records) != 1 || page.Records[0].Key != k {
			t.Errorf("list %+v: %+v, %v", q, page, err)
		}
		if queries, gets = d.spy.queries.Load()-queries, d.spy.gets.Load()-gets; queries != 1 || gets != 0 {
			t.Errorf("list %+v took %d queries and %d reads", q, queries, gets)
		}
	}
}

// TestListScope checks that the entities with their own limits on a resource are found without those on others.
func TestListScope(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	limits := func(id, resource string) store.Write {
		return put(store.Key{Namespace: "n", Kind: store.KindEntityLimits, ID: id, Sub: resource}, 0, id)
	}
	if err := d.Commit(t.Context(), limits("a", "x"), limits("b", "y"), limits("c", "x"), limits("c", "y")); err != nil {
		t.Fatal(err)
	}
	queries := d.spy.queries.Load()
	if got := d.ids(t, store.Query{Namespace: "n", Kind: store.KindEntityLimits, Sub: "x"}); got != "a c" {
		t.Errorf("on x: %q", got)
	}
	if n := d.spy.queries.Load() - queries; n != 1 {
		t.Errorf("%d queries, want 1", n)
	}
}

// TestListExpired checks that a page continues past any number of records that have expired but still exist.
func TestListExpired(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for i := range 5 {
		var writes []store.Write
		for j := range 90 {
			w := put(entity(fmt.Sprintf("%03d", i*90+j)), 0, "x")
			if n := i*90 + j; n%150 != 149 {
				w.Record.Expires = noon.Add(-time.Second)
			}
			writes = append(writes, w)
		}
		if err := d.Commit(t.Context(), writes...); err != nil {
			t.Fatal(err)
		}
	}
	for _, reverse := range []bool{false, true} {
		q := store.Query{Namespace: "n", Kind: store.KindEntity, Reverse: reverse, Max: 2}
		want := map[bool]string{false: "149 299", true: "449 299"}[reverse]
		page, err := d.List(t.Context(), q)
		if err != nil || len(page.Records) != 2 || page.Records[0].Key.ID+" "+page.Records[1].Key.ID != want || page.Next == "" {
			t.Fatalf("first page %+v, %v", page, err)
		}
		q.After = page.Next
		if page, err = d.List(t.Context(), q); err != nil || len(page.Records) != 1 || page.Next != "" {
			t.Errorf("last page %+v, %v", page, err)
		}
	}
}

// TestListLazy checks that a page reads about as much as it shows, not the whole namespace.
func TestListLazy(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for i := range 10 {
		var writes []store.Write
		for j := range 96 {
			writes = append(writes, put(entity(fmt.Sprintf("%03d", i*96+j)), 0, "x"))
		}
		if err := d.Commit(t.Context(), writes...); err != nil {
			t.Fatal(err)
		}
	}
	var read atomic.Int64
	d.spy.query = func(ctx context.Context, in *sdk.QueryInput) (*sdk.QueryOutput, error) {
		out, err := d.client.Query(ctx, in)
		if err == nil {
			read.Add(int64(len(out.Items)))
		}
		return out, err
	}
	page, err := d.List(t.Context(), store.Query{Namespace: "n", Kind: store.KindEntity, Max: 10})
	if err != nil || len(page.Records) != 10 || page.Records[9].Key.ID != "009" {
		t.Fatalf("page %+v, %v", page, err)
	}
	if n := read.Load(); n > 150 {
		t.Errorf("a page of 10 read %d entries of 960", n)
	}
	if n := d.spy.queries.Load(); n > 24 {
		t.Errorf("a page of 10 took %d queries", n)
	}
}

// TestListPartial checks that DynamoDB may return less than was asked for, even nothing, with more to come.
func TestListPartial(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	k := store.Key{Namespace: "n", Kind: store.KindEntityLimits, ID: "a"}
	for i := range 7 {
		k.Sub = fmt.Sprint(i)
		if err := d.Commit(t.Context(), put(k, 0, "x")); err != nil {
			t.Fatal(err)
		}
	}
	var n atomic.Int64
	d.spy.query = func(ctx context.Context, in *sdk.QueryInput) (*sdk.QueryOutput, error) {
		switch n.Add(1) % 3 {
		case 0:
			start := in.ExclusiveStartKey
			if start == nil {
				break
			}
			return &sdk.QueryOutput{LastEvaluatedKey: start}, nil
		case 1:
			return nil, &types.ProvisionedThroughputExceededException{}
		}
		in.Limit = aws.Int32(1)
		return d.client.Query(ctx, in)
	}
	for _, q := range []store.Query{{ID: "a"}, {}, {Reverse: true}, {Max: 3}} {
		q.Namespace, q.Kind = k.Namespace, k.Kind
		if got := d.ids(t, q); got != strings.Repeat(" a", 7)[1:] {
			t.Errorf("list %+v: %q", q, got)
		}
	}
}

// TestListFails checks that an error in one of the index's partitions is an error of the list.
func TestListFails(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.Commit(t.Context(), put(entity("a"), 0, "x")); err != nil {
		t.Fatal(err)
	}
	denied := errors.New("no")
	d.spy.query = func(ctx context.Context, in *sdk.QueryInput) (*sdk.QueryOutput, error) {
		if strings.HasSuffix(in.ExpressionAttributeValues[":h"].(*types.AttributeValueMemberS).Value, "#11") {
			return nil, &types.ResourceNotFoundException{Message: aws.String(denied.Error())}
		}
		return d.client.Query(ctx, in)
	}
	_, err := d.List(t.Context(), store.Query{Namespace: "n", Kind: store.KindEntity})
	if known, ok := errors.AsType[*store.Error](err); !ok || known.Op != "list" || known.Hint == "" {
		t.Errorf("error %v", err)
	}
}

// TestListPrefix checks that a search by prefix reads only what begins with it.
func TestListPrefix(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var writes []store.Write
	for i := range 40 {
		writes = append(writes, child(fmt.Sprintf("%c-%d", 'a'+i%4, i/4), "p", 0))
	}
	if err := d.Commit(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	read := 0
	d.spy.query = func(ctx context.Context, in *sdk.QueryInput) (*sdk.QueryOutput, error) {
		out, err := d.client.Query(ctx, in)
		if err == nil {
			read += len(out.Items)
		}
		return out, err
	}
	q := store.Query{Namespace: "n", Kind: store.KindEntity, Parent: "p", Prefix: "c-"}
	if got := d.ids(t, q); len(strings.Fields(got)) != 10 || strings.Contains(got, "b-") || read != 10 {
		t.Errorf("read %d items to list %q", read, got)
	}
}

// TestListForeign: an item of another namespace whose attributes name this one's partition of an index does not disturb
// its lists. Whoever may write buckets of a namespace can make such an item.
func TestListForeign(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.Commit(t.Context(), put(entity("a"), 0, "a")); err != nil {
		t.Fatal(err)
	}
	str := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	for i := range 16 {
		if _, err := d.client.PutItem(t.Context(), &sdk.PutItemInput{TableName: aws.String(d.table), Item: map[string]types.AttributeValue{
			"PK": str("other/BUCKET#e#r#0"), "SK": str(fmt.Sprintf("#%02d", i)),
			"GP": str(fmt.Sprintf("n/IDX#%d", i)), "GS": str("entity\x00b\x00"),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.ids(t, store.Query{Namespace: "n", Kind: store.KindEntity}); got != "a" {
		t.Errorf("listed %q, want a", got)
	}
}
