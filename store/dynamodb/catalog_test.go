package dynamodb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/internal/catalog"
)

var noon = time.Date(2026, time.March, 1, 12, 34, 56, 789_012_345, time.UTC)

// spy passes the catalog's calls on, each through its func if it has one, and counts them.
type spy struct {
	dynamodb.API

	get    func(context.Context, *sdk.BatchGetItemInput) (*sdk.BatchGetItemOutput, error)
	commit func(context.Context, *sdk.TransactWriteItemsInput) (*sdk.TransactWriteItemsOutput, error)
	query  func(context.Context, *sdk.QueryInput) (*sdk.QueryOutput, error)

	gets, commits, queries atomic.Int64
}

func (s *spy) BatchGetItem(ctx context.Context, in *sdk.BatchGetItemInput, _ ...func(*sdk.Options)) (*sdk.BatchGetItemOutput, error) {
	s.gets.Add(1)
	if s.get != nil {
		return s.get(ctx, in)
	}
	return s.API.BatchGetItem(ctx, in)
}

func (s *spy) TransactWriteItems(ctx context.Context, in *sdk.TransactWriteItemsInput, _ ...func(*sdk.Options)) (*sdk.TransactWriteItemsOutput, error) {
	s.commits.Add(1)
	if s.commit != nil {
		return s.commit(ctx, in)
	}
	return s.API.TransactWriteItems(ctx, in)
}

func (s *spy) Query(ctx context.Context, in *sdk.QueryInput, _ ...func(*sdk.Options)) (*sdk.QueryOutput, error) {
	s.queries.Add(1)
	if s.query != nil {
		return s.query(ctx, in)
	}
	return s.API.Query(ctx, in)
}

// desk is a table of its own on the engine, a store on it, and a spy between the two.
type desk struct {
	*dynamodb.Store

	client *sdk.Client
	spy    *spy
	table  string
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	d := &desk{client: dynamotest.Client(t, dynamotest.Engine(t)), table: dynamotest.Table(t)}
	if _, err := dynamodb.Create(t.Context(), d.client, d.table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	d.spy = &spy{API: d.client}
	d.Store = newCatalog(t, d.spy, d.table, func(c *dynamodb.Config) { c.CallTimeout, c.WriteTimeout = patient, patient })
	return d
}

func newCatalog(t testing.TB, client dynamodb.API, table string, change ...func(*dynamodb.Config)) *dynamodb.Store {
	t.Helper()
	cfg := dynamodb.Config{Client: client, Table: table, Now: func() time.Time { return noon }}
	for _, c := range change {
		c(&cfg)
	}
	s, err := dynamodb.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func entity(id string) store.Key {
	return store.Key{Namespace: "n", Kind: store.KindEntity, ID: id}
}

func put(k store.Key, version uint64, value string) store.Write {
	return store.Write{Record: store.Record{Key: k, Version: version, Value: []byte(value)}}
}

func (d *desk) want(t testing.TB, k store.Key, version uint64, value string) {
	t.Helper()
	got, err := d.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Records[0]; r.Version != version || string(r.Value) != value {
		t.Errorf("%v: version %d of %q, want %d of %q", k, r.Version, r.Value, version, value)
	}
}

// edit changes an item by hand.
func (d *desk) edit(t testing.TB, pk, sk, attr string, v types.AttributeValue) {
	t.Helper()
	in := &sdk.UpdateItemInput{
		TableName: &d.table, UpdateExpression: aws.String("SET #a = :v"), ExpressionAttributeNames: map[string]string{"#a": attr},
		Key: map[string]types.AttributeValue{"PK": &types.AttributeValueMemberS{Value: pk}, "SK": &types.AttributeValueMemberS{Value: sk}},
	}
	if in.ExpressionAttributeValues = map[string]types.AttributeValue{":v": v}; v == nil {
		in.UpdateExpression, in.ExpressionAttributeValues = aws.String("REMOVE #a"), nil
	}
	if _, err := d.client.UpdateItem(t.Context(), in); err != nil {
		t.Fatal(err)
	}
}

func text(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func number(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }

// TestGetRoundTrips checks that a read takes one round trip, except the first of a namespace, and the first after a
// commit of our own.
func TestGetRoundTrips(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	other := newCatalog(t, d.client, d.table)
	d.spy.get = func(ctx context.Context, in *sdk.BatchGetItemInput) (*sdk.BatchGetItemOutput, error) {
		if !aws.ToBool(in.RequestItems[d.table].ConsistentRead) {
			t.Error("a read that may be of yesterday")
		}
		return d.client.BatchGetItem(ctx, in)
	}
	get := func(want int64, epoch, version uint64) {
		t.Helper()
		before := d.spy.gets.Load()
		got, err := d.Get(t.Context(), entity("a"), entity("b"))
		if err != nil {
			t.Fatal(err)
		}
		if n := d.spy.gets.Load() - before; n != want {
			t.Errorf("%d calls, want %d", n, want)
		}
		if got.Epoch != epoch || got.Records[0].Version != version {
			t.Errorf("version %d at epoch %d, want %d at %d", got.Records[0].Version, got.Epoch, version, epoch)
		}
	}
	get(2, 0, 0)
	get(1, 0, 0)
	if err := d.Commit(t.Context(), put(entity("a"), 0, "x")); err != nil {
		t.Fatal(err)
	}
	get(2, 1, 1)
	get(1, 1, 1)
	if err := d.Commit(t.Context(), put(entity("a"), 7, "x")); !errors.Is(err, store.ErrConflict) {
		t.Fatal(err)
	}
	get(1, 1, 1)
	if err := other.Commit(t.Context(), put(entity("a"), 1, "x")); err != nil {
		t.Fatal(err)
	}
	get(1, 1, 2) // another process's change comes with a stamp from before it
	get(1, 2, 2)
}

// TestGetDuringCommit checks that a read that was under way when a commit of ours ended does not determine the epoch
// known after it.
func TestGetDuringCommit(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.want(t, entity("a"), 0, "")
	d.spy.get = func(ctx context.Context, in *sdk.BatchGetItemInput) (*sdk.BatchGetItemOutput, error) {
		d.spy.get = nil
		out, err := d.client.BatchGetItem(ctx, in)
		if err := d.Commit(ctx, put(entity("a"), 0, "x")); err != nil {
			t.Error(err)
		}
		return out, err
	}
	d.want(t, entity("a"), 0, "")
	got, err := d.Get(t.Context(), entity("a"))
	if err != nil || got.Epoch != 1 || got.Records[0].Version != 1 {
		t.Errorf("after the commit: %+v, %v", got, err)
	}
}

// TestGetMany reads more keys than a batch may ask for, some of them twice.
func TestGetMany(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var keys []store.Key
	var writes []store.Write
	for i := range 230 {
		keys = append(keys, entity(fmt.Sprint(i)))
		writes = append(writes, put(keys[i], 0, fmt.Sprint("value ", i)))
	}
	for some := range slices.Chunk(writes, store.MaxWrites) {
		if err := d.Commit(t.Context(), some...); err != nil {
			t.Fatal(err)
		}
	}
	keys = append(keys, keys[7], keys[229], entity("none"))
	got, err := d.Get(t.Context(), keys...)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Records {
		if r.Key != keys[i] || i < 232 && string(r.Value) != "value "+keys[i].ID || i == 232 && r.Version != 0 {
			t.Errorf("record %d of %v: %+v", i, keys[i], r)
		}
	}
}

// TestGetUnprocessed checks that keys that a throttled table leaves unprocessed are read again, and never taken for
// missing.
func TestGetUnprocessed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	keys := []store.Key{entity("a"), entity("b"), entity("c"), entity("d")}
	for _, k := range keys {
		if err := d.Commit(t.Context(), put(k, 0, k.ID)); err != nil {
			t.Fatal(err)
		}
	}
	d.spy.get = func(ctx context.Context, in *sdk.BatchGetItemInput) (*sdk.BatchGetItemOutput, error) {
		ask := in.RequestItems[d.table]
		n := len(ask.Keys) / 2
		if d.spy.gets.Load()%3 == 0 {
			n = 0 // the table processes nothing at all
		}
		left := types.KeysAndAttributes{Keys: ask.Keys[n:], ConsistentRead: ask.ConsistentRead}
		if d.spy.gets.Load()%2 == 1 && len(ask.Keys) < 3 {
			n, left.Keys = len(ask.Keys), nil
		}
		if ask.Keys = ask.Keys[:n]; n == 0 {
			return &sdk.BatchGetItemOutput{UnprocessedKeys: map[string]types.KeysAndAttributes{d.table: left}}, nil
		}
		out, err := d.client.BatchGetItem(ctx, &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{d.table: ask}})
		if len(left.Keys) > 0 {
			out.UnprocessedKeys = map[string]types.KeysAndAttributes{d.table: left}
		}
		return out, err
	}
	got, err := d.Get(t.Context(), keys...)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Records {
		if string(r.Value) != keys[i].ID {
			t.Errorf("%v: %+v", keys[i], r)
		}
	}
	if got.Epoch != 4 {
		t.Errorf("epoch %d, want 4", got.Epoch)
	}
}

// TestDamagedRecords checks that an invalid edit by hand causes an error that says where, and affects nothing else.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.Commit(t.Context(), put(entity("good"), 0, "fine")); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		attr string
		to   types.AttributeValue
	}{
		{"v", text("two")},
		{"v", nil},
		{"v", number("-1")},
		{"v", number("0")},
		{"v", number("1.5")},
		{"d", text("not binary")},
		{"d", nil},
		{"parent", number("1")},
		{"expires", text("tomorrow")},
	} {
		k := entity(fmt.Sprint("bad-", i))
		k.Namespace = "bad"
		w := put(k, 0, "x")
		w.Record.Parent, w.Record.Expires = "p", noon.Add(time.Hour)
		if err := d.Commit(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		d.edit(t, "bad/ENTITY#"+k.ID, "#META", tt.attr, tt.to)
		_, err := d.Get(t.Context(), k)
		_, err2 := d.List(t.Context(), store.Query{Namespace: k.Namespace, Kind: k.Kind, ID: k.ID})
		_, err3 := d.List(t.Context(), store.Query{Namespace: k.Namespace, Kind: k.Kind})
		errs := []error{err, err2, err3}
		if tt.attr == "v" {
			errs = append(errs, d.Commit(t.Context(), put(k, 1, "y")))
		}
		for _, err := range errs {
			if known, ok := errors.AsType[*store.Error](err); !ok || known.Hint == "" {
				t.Errorf("%s: error %v", tt.attr, err)
				continue
			}
			for _, part := range []string{d.table, "bad/ENTITY#" + k.ID, "#META", "attribute " + tt.attr + ":"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not name %s", err, part)
				}
			}
		}
		d.edit(t, "bad/ENTITY#"+k.ID, "#META", "v", number("1"))
		d.edit(t, "bad/ENTITY#"+k.ID, "#META", "expires", nil)
		if err := d.Commit(t.Context(), put(k, 1, "mended"), store.Write{Record: store.Record{Key: entity("good"), Version: 1}, Check: true}); err != nil {
			t.Errorf("to mend %v: %v", k, err)
		}
		d.want(t, k, 2, "mended")
		d.want(t, entity("good"), 1, "fine")
	}
	d.edit(t, "n/SYSTEM#", "#EPOCH", "n", text("many"))
	if _, err := newCatalog(t, d.client, d.table).Get(t.Context(), entity("good")); err == nil || !strings.Contains(err.Error(), "#EPOCH") {
		t.Errorf("with a damaged epoch: error %v", err)
	}
}

// TestForeignPlace checks that an item that the index lists under another item's name is not taken for that item.
func TestForeignPlace(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.Commit(t.Context(), put(entity("a"), 0, "x"), put(entity("b"), 0, "y")); err != nil {
		t.Fatal(err)
	}
	d.edit(t, "n/ENTITY#a", "#META", "GS", text("entity\x00b\x00"))
	if _, err := d.List(t.Context(), store.Query{Namespace: "n", Kind: store.KindEntity}); err == nil || !strings.Contains(err.Error(), "attribute GS") {
		t.Errorf("error %v", err)
	}
}

// TestFarExpiry checks that extreme times are kept as exactly as the table can.
func TestFarExpiry(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for i, year := range []int{1, 1600, 2200, 3000, 290_000_000} {
		w := put(entity(fmt.Sprint(i)), 0, "x")
		w.Record.Expires = time.Date(year, 1, 2, 0, 0, 0, 0, time.UTC)
		if err := d.Commit(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		d.want(t, w.Record.Key, map[bool]uint64{true: 1}[year > 2026], map[bool]string{true: "x"}[year > 2026])
	}
}

// TestAsInMemory checks that a random history reads the same as in the embedded catalog.
func TestAsInMemory(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	now := noon
	s, err := dynamodb.New(dynamodb.Config{Client: d.client, Table: d.table, CallTimeout: patient, WriteTimeout: patient, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	world := 0
	rapid.Check(t, func(t *rapid.T) {
		world++
		c := catalog.New(func() time.Time { return now })
		anyKey := rapid.Custom(func(t *rapid.T) store.Key {
			return store.Key{
				Namespace: fmt.Sprint(world, rapid.SampledFrom([]string{"", "#"}).Draw(t, "namespace")),
				Kind:      rapid.SampledFrom([]store.Kind{store.KindEntity, store.KindEntityLimits, store.KindAudit, store.KindSystem, store.KindRevision}).Draw(t, "kind"),
				ID:        rapid.SampledFrom([]string{"", "a", "a/b", "#", "\x00", "\x01"}).Draw(t, "id"), Sub: rapid.SampledFrom([]string{"", "a", "#", "\x00"}).Draw(t, "sub"),
			}
		})
		key := rapid.SampledFrom(rapid.SliceOfNDistinct(anyKey, 3, 6, rapid.ID).Draw(t, "all keys"))
		for range rapid.IntRange(1, 10).Draw(t, "commits") {
			var writes []store.Write
			for _, k := range rapid.SliceOfNDistinct(key, 1, 3, rapid.ID).Draw(t, "keys") {
				got, err := c.Get([]store.Key{k})
				if err != nil {
					t.Fatal(err)
				}
				w := put(k, got.Records[0].Version, rapid.StringN(0, 3, -1).Draw(t, "value"))
				w.Record.Version += rapid.SampledFrom([]uint64{0, 0, 0, 0, 1}).Draw(t, "off")
				w.Record.Parent = rapid.SampledFrom([]string{"", "p", "p/q"}).Draw(t, "parent")
				w.Delete = rapid.IntRange(0, 4).Draw(t, "delete") == 0
				w.Check = !w.Delete && rapid.IntRange(0, 4).Draw(t, "check") == 0
				if rapid.IntRange(0, 3).Draw(t, "expires") == 0 {
					w.Record.Expires = now.Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second)
				}
				writes = append(writes, w)
			}
			want, got := c.Commit(writes, nil), s.Commit(t.Context(), writes...)
			var a, b *store.ConflictError
			if errors.As(want, &a) != errors.As(got, &b) || a != nil && *a != *b || (want == nil) != (got == nil) {
				t.Fatalf("commit %+v: %v, want %v", writes, got, want)
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "pause")) * time.Second)
			q := store.Query{Max: rapid.IntRange(1, 3).Draw(t, "max"), Reverse: rapid.Bool().Draw(t, "reverse")}
			k := key.Draw(t, "of")
			q.Namespace, q.Kind, q.Parent = k.Namespace, k.Kind, rapid.SampledFrom([]string{"", "p", "p/q"}).Draw(t, "of parent")
			q.ID, q.Sub = rapid.SampledFrom([]string{"", k.ID}).Draw(t, "of id"), rapid.SampledFrom([]string{"", k.Sub}).Draw(t, "of sub")
			for mine, theirs := q, q; ; {
				want, err := c.List(mine)
				got, err2 := s.List(t.Context(), theirs)
				if err != nil || err2 != nil || !slices.EqualFunc(got.Records, want.Records, same) || (got.Next == "") != (want.Next == "") {
					t.Fatalf("list %+v: %+v, %v\nwant %+v, %v", q, got, err2, want, err)
				}
				if mine.After, theirs.After = want.Next, got.Next; want.Next == "" {
					break
				}
			}
			wantGot, _ := c.Get([]store.Key{k})
			have, err := s.Get(t.Context(), k)
			if err != nil || have.Epoch != wantGot.Epoch || !same(have.Records[0], wantGot.Records[0]) {
				t.Fatalf("get: %+v, %v, want %+v", have, err, wantGot)
			}
		}
	})
}

func same(a, b store.Record) bool {
	return a.Key == b.Key && a.Version == b.Version && a.Parent == b.Parent && bytes.Equal(a.Value, b.Value) && a.Expires.Equal(b.Expires)
}

// TestEpochs checks that epochs are current, including those that other processes have raised and those of namespaces
// that were never written to.
func TestEpochs(t *testing.T) {
	t.Parallel()
	endpoint, table := dynamotest.Engine(t), dynamotest.Table(t)
	client := dynamotest.Client(t, endpoint)
	if _, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	watch := &spy{API: client}
	open := func(api dynamodb.API) *dynamodb.Store {
		s, err := dynamodb.New(dynamodb.Config{Client: api, Table: table, CallTimeout: patient, WriteTimeout: patient})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	s, other := open(watch), open(client)
	for n := range uint64(3) {
		got, err := s.Epochs(t.Context(), "never", "a#b", "never")
		if err != nil || !slices.Equal(got, []uint64{0, n, 0}) {
			t.Errorf("%v, error %v, want %d", got, err, n)
		}
		w := store.Write{Record: store.Record{Key: store.Key{Namespace: "a#b", Kind: store.KindSystem}, Version: n, Value: []byte("{}")}}
		if err := other.Commit(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if n := watch.gets.Load(); n != 3 {
		t.Errorf("%d calls for 3 looks", n)
	}
	// What Epochs saw is the stamp of the next read.
	if _, err := s.Epochs(t.Context(), "a#b"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), store.Key{Namespace: "a#b", Kind: store.KindSystem}); err != nil || got.Epoch != 3 {
		t.Errorf("epoch %d, error %v", got.Epoch, err)
	}
}
