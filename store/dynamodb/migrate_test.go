package dynamodb_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// scanned is a fake that supports Scan, a few items at a time.
type scanned struct{ *dynamotest.Fake }

const scanPage = 5

func (f scanned) Scan(_ context.Context, in *sdk.ScanInput, _ ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	all, out := f.Items(*in.TableName), new(sdk.ScanOutput)
	from := 0
	if in.ExclusiveStartKey != nil {
		from = 1 + slices.IndexFunc(all, func(it dynamodb.Item) bool {
			return cmp.Equal(it["PK"], in.ExclusiveStartKey["PK"], noUnexported) && cmp.Equal(it["SK"], in.ExclusiveStartKey["SK"], noUnexported)
		})
	}
	to := min(from+scanPage, len(all))
	if out.Items = all[from:to]; to < len(all) {
		last := all[to-1]
		out.LastEvaluatedKey = dynamodb.Item{"PK": last["PK"], "SK": last["SK"]}
	}
	return out, nil
}

var noUnexported = cmp.FilterPath(func(p cmp.Path) bool {
	f, ok := p.Last().(cmp.StructField)
	return ok && f.Name() == "noSmithyDocumentSerde"
}, cmp.Ignore())

// fixture is a table as a certain commit wrote it, and what that commit read from it at Now. Commit b3859fc is the
// driver's first. Commit 451f7b6 split shards one by one, to uneven depths, and kept in B_ what returns were about to use.
type fixture struct {
	Commit string
	Now    time.Time
	Items  []map[string]struct {
		S, N *string
		B    []byte
	}
	States  []store.State
	Records []store.Record
}

func loadFixture(t testing.TB, commit string) (*stage, *fixture) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + commit + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var fx fixture
	if err := json.Unmarshal(text, &fx); err != nil || fx.Commit != commit || len(fx.States) == 0 {
		t.Fatalf("fixture %s has %d states and %d records: %v", fx.Commit, len(fx.States), len(fx.Records), err)
	}
	st := newStage(t)
	st.clock.Advance(fx.Now.Sub(st.clock.Now()))
	for _, it := range fx.Items {
		item := make(dynamodb.Item)
		for name, v := range it {
			switch {
			case v.S != nil:
				item[name] = &types.AttributeValueMemberS{Value: *v.S}
			case v.N != nil:
				item[name] = &types.AttributeValueMemberN{Value: *v.N}
			default:
				item[name] = &types.AttributeValueMemberB{Value: v.B}
			}
		}
		if _, err := st.fake.PutItem(t.Context(), &sdk.PutItemInput{TableName: aws.String(stageTable), Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	return st, &fx
}

// same checks that levels, limits and catalog read the same as where they were written.
func (fx *fixture) same(t *testing.T, st *stage) {
	t.Helper()
	s := st.open()
	if err := s.CheckVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range fx.States {
		got := st.state(want.Bucket)
		if n := st.shards(want.Bucket); n > 1 {
			want.Items = n // which no state showed when the fixture was written
		}
		windows := cmp.Comparer(func(a, b calendar.Window) bool { return a == b })
		if !cmp.Equal(want, got, windows) {
			t.Errorf("bucket %s: %s", want.Bucket, cmp.Diff(want, got, windows))
		}
	}
	for _, want := range fx.Records {
		got, err := s.Get(t.Context(), want.Key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]store.Record{want}, got.Records); diff != "" {
			t.Error(diff)
		}
	}
}

// given is a migration that makes explicit what the absence of B_ means in older items.
var given = dynamodb.Step{From: 1, Change: func(it dynamodb.Item) (to dynamodb.Item, by []string, err error) {
	to = make(dynamodb.Item)
	for name := range it {
		if limit, ok := strings.CutPrefix(name, "L_"); ok && it["B_"+limit] == nil {
			to["B_"+limit] = &types.AttributeValueMemberN{Value: "0"}
		}
	}
	return to, []string{"id"}, nil
}}

// TestReadOld checks that what the first commit of the driver wrote can be read, and that there is nothing to migrate.
func TestReadOld(t *testing.T) {
	t.Parallel()
	st, fx := loadFixture(t, "b3859fc")
	fx.same(t, st)
	writes := st.writes()
	done, err := dynamodb.Migrate(t.Context(), scanned{st.fake}, stageTable, dynamodb.MigrateConfig{})
	if want := (dynamodb.Migrated{From: 1, To: dynamodb.SchemaVersion}); err != nil || done != want || st.writes() != writes {
		t.Errorf("%+v, %v and %d writes, want %+v and none", done, err, st.writes()-writes, want)
	}
	fx.same(t, st)
}

// TestDecideOld checks that what commit 451f7b6 wrote is read as that commit read it, and is decided on without admitting
// more than what that commit left, by processes that split, settle and undo meanwhile.
func TestDecideOld(t *testing.T) {
	t.Parallel()
	_, fx := loadFixture(t, "451f7b6")
	for _, was := range fx.States {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprint(was.Bucket.Entity, " ", split), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { decideOld(t, was, split) })
			})
		}
	}
}

func decideOld(t *testing.T, was store.State, split bool) {
	st, fx := loadFixture(t, "451f7b6")
	fx.same(t, st)
	b, full := was.Bucket, bkt("full")
	a, peer := st.open(noGuard, noMemory), st.open(noGuard, noMemory)
	var own []store.Charge
	for _, l := range was.Limits {
		if !l.Limit.Override {
			own = append(own, store.Charge{Limit: l.Limit})
		}
	}
	take := func(s *dynamodb.Store, tokens int64) bool {
		own[0].Amount = 1000 * tokens
		return st.take(s, store.Debit{Bucket: b, Epoch: was.Epoch, Charges: own}).Allowed
	}
	limit := was.Limits[0]
	if limit.Limit.Override {
		limit = was.Limits[1]
	}
	begun := st.clock.Now()
	left := limit.Limit.Burst - clock.Outstanding(limit.Level, st.reading(limit.Limit)) // negative: debt
	shards := st.shards(b)
	if b.Entity == "uneven-debt" {
		left += 15_000 // what was forced, which some shards owe while others have room
	}
	admitted := int64(0)
	for round := range 30 {
		if split && round == 10 {
			st.split(a, b, 2*shards)
		}
		for _, s := range []*dynamodb.Store{a, peer} {
			for range 10 {
				if take(s, 1) {
					admitted += 1000
				}
			}
			if b != full { // which refuses, so the bucket's own debit is undone
				st.want(s, false, store.Debit{Bucket: b, Epoch: was.Epoch, Charges: own}, of(full, per("rpm", 60, time.Minute, 60), 60))
			}
			s.Flush()
		}
		if most := left + st.reading(limit.Limit) - readingAt(limit.Limit, begun); admitted > max(0, most) {
			t.Fatalf("%d admitted after %v, of %d", admitted, st.clock.Now().Sub(begun), most)
		}
		st.clock.Advance(time.Second)
	}
	if issued := st.reading(limit.Limit) - readingAt(limit.Limit, begun); shards == 1 && !split && admitted < left+issued-2000 {
		t.Errorf("%d admitted of %d", admitted, left+issued)
	}
	st.clock.Advance(time.Hour)
	n := int64(0)
	for take(a, 1) {
		n++
	}
	if burst := limit.Limit.Burst / 1000; n > burst || n < burst-int64(shards) {
		t.Errorf("%d admitted after an hour, of %d", n, burst)
	}
}

// TestMigrateKilled checks that a migration that is killed before or after any of its writes continues where it was, and
// that levels, limits and catalog are at every moment as the old commit read them, for old clients, too.
func TestMigrateKilled(t *testing.T) {
	t.Parallel()
	unraced(t)
	for _, applied := range []bool{false, true} {
		for n := 1; ; n++ {
			st, fx := loadFixture(t, "b3859fc")
			p := &process{Fake: st.fake}
			dead := false
			p.kill(n, applied, &dead)
			_, err := dynamodb.MigrateBy(t.Context(), migrator{p}, stageTable, dynamodb.MigrateConfig{}, 2, given)
			if dead != errors.Is(err, errKilled) {
				t.Fatalf("killed at write %d: %v", n, err)
			}
			fx.same(t, st)
			first, err := dynamodb.MigrateBy(t.Context(), scanned{st.fake}, stageTable, dynamodb.MigrateConfig{}, 2, given)
			if err != nil {
				t.Fatal(err)
			}
			if n > 12 && dead && first.Read > int64(len(fx.Items)-scanPage) {
				t.Errorf("killed at write %d, it reads %d items again", n, first.Read)
			}
			fx.same(t, st)
			sc, err := dynamodb.ReadSchema(t.Context(), st.fake, stageTable)
			if err != nil || sc.Version != 2 || sc.Client != 1 || sc.Target != 0 {
				t.Fatalf("schema %+v, %v", sc, err)
			}
			if left := unmigrated(st); left != 0 {
				t.Fatalf("killed at write %d: %d items are as they were", n, left)
			}
			if !dead {
				if n < 14 {
					t.Errorf("%d writes are too few for a test", n)
				}
				break
			}
		}
	}
}

// unmigrated counts the items that given would change.
func unmigrated(st *stage) (n int) {
	for _, it := range st.fake.Items(stageTable) {
		if to, _, _ := given.Change(it); len(to) > 0 {
			n++
		}
	}
	return n
}

// migrator is a process that can scan.
type migrator struct{ *process }

func (m migrator) Scan(ctx context.Context, in *sdk.ScanInput, o ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return scanned{m.Fake}.Scan(ctx, in, o...)
}

// TestMigrateDry checks that a dry run counts, and writes nothing.
func TestMigrateDry(t *testing.T) {
	t.Parallel()
	st, fx := loadFixture(t, "b3859fc")
	writes, pages := st.writes(), 0
	done, err := dynamodb.MigrateBy(t.Context(), scanned{st.fake}, stageTable, dynamodb.MigrateConfig{
		DryRun: true, Progress: func(dynamodb.Migrated) { pages++ },
	}, 2, given)
	want := dynamodb.Migrated{From: 1, To: 2, Step: "test", Read: int64(len(fx.Items)), Changed: int64(unmigrated(st))}
	if err != nil || done != want || done.Changed == 0 {
		t.Errorf("%+v, %v, want %+v", done, err, want)
	}
	if st.writes() != writes || pages != (len(fx.Items)+scanPage-1)/scanPage {
		t.Errorf("%d writes, %d pages", st.writes()-writes, pages)
	}
}

// TestMigrateBeside checks that an item that is written or deleted between its read and the migration's write is read
// again.
func TestMigrateBeside(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		st, fx := loadFixture(t, "b3859fc")
		bob := fx.States[slices.IndexFunc(fx.States, func(s store.State) bool { return s.Bucket.Entity == "key-bob" })].Bucket
		key := dynamodb.Item{"PK": &types.AttributeValueMemberS{Value: "default/BUCKET#key-bob#gpt-4#0"}, "SK": &types.AttributeValueMemberS{Value: "#STATE"}}
		p, met := &process{Fake: st.fake}, false
		p.before = func(_ string, in any) error {
			u, ok := in.(*sdk.UpdateItemInput)
			if !ok || met || !cmp.Equal(key, u.Key, noUnexported) {
				return nil
			}
			met = true
			if deleted {
				_, err := st.fake.DeleteItem(t.Context(), &sdk.DeleteItemInput{TableName: aws.String(stageTable), Key: key})
				return err
			}
			_, err := st.fake.UpdateItem(t.Context(), &sdk.UpdateItemInput{
				TableName: aws.String(stageTable), Key: key, UpdateExpression: aws.String("SET #b = :seven"),
				ExpressionAttributeNames: map[string]string{"#b": "B_tpm"}, ExpressionAttributeValues: dynamodb.Item{":seven": &types.AttributeValueMemberN{Value: "7"}},
			})
			return err
		}
		if _, err := dynamodb.MigrateBy(t.Context(), migrator{p}, stageTable, dynamodb.MigrateConfig{}, 2, given); err != nil || !met {
			t.Fatalf("met %t: %v", met, err)
		}
		it := st.shard(bob, 0)
		if deleted && it != nil {
			t.Errorf("a deleted item is back: %v", it)
		}
		if !deleted && (intOf(it, "B_tpm") != 7 || it["B_rpm"] == nil) {
			t.Errorf("B_tpm is %d and B_rpm %v, want what was written beside, and 0", intOf(it, "B_tpm"), it["B_rpm"])
		}
	}
}

// TestMigrateTwice checks that a migration that another run has overtaken does not set the version back.
func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	st, fx := loadFixture(t, "b3859fc")
	p, other := &process{Fake: st.fake}, 0
	p.before = func(string, any) error {
		if other++; other != 4 {
			return nil
		}
		_, err := dynamodb.MigrateBy(t.Context(), scanned{st.fake}, stageTable, dynamodb.MigrateConfig{}, 2, given)
		return err
	}
	if _, err := dynamodb.MigrateBy(t.Context(), migrator{p}, stageTable, dynamodb.MigrateConfig{}, 2, given); err != nil {
		t.Fatal(err)
	}
	sc, err := dynamodb.ReadSchema(t.Context(), st.fake, stageTable)
	if err != nil || sc.Version != 2 || sc.Target != 0 || other < 4 {
		t.Errorf("schema %+v after %d writes: %v", sc, other, err)
	}
	fx.same(t, st)
}

// TestMinimumClient checks that what counts for clients is the version that a table demands, not the version that it has.
func TestMinimumClient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ n, least, to, want string }{
		{"2", "1", "", ""},
		{"1", "1", "2", ""},
		{"2", "", "", "schema version is 2; this weir knows 1"},
		{"2", "2", "", "schema version is 2; this weir knows 1"},
		{"1", "2", "2", "requires clients that know schema version 2; this weir knows 1"},
		{"3", "2", "", "requires clients that know schema version 2"},
		{"1", "x", "", "attribute"},
	} {
		st := newStage(t)
		it := dynamodb.Item{"PK": &types.AttributeValueMemberS{Value: "_/SYSTEM#"}, "SK": &types.AttributeValueMemberS{Value: "#VERSION"}}
		for name, n := range map[string]string{"n": tt.n, "min": tt.least, "to": tt.to} {
			if n == "x" {
				it[name] = &types.AttributeValueMemberS{Value: n}
			} else if n != "" {
				it[name] = &types.AttributeValueMemberN{Value: n}
			}
		}
		if _, err := st.fake.PutItem(t.Context(), &sdk.PutItemInput{TableName: aws.String(stageTable), Item: it}); err != nil {
			t.Fatal(err)
		}
		err := st.open().CheckVersion(t.Context())
		var known *store.Error
		if (tt.want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), tt.want) || !errors.As(err, &known) || known.Hint == "") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestMigrateRefused checks that no table of another version is changed.
func TestMigrateRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n, least, want string
		steps          []dynamodb.Step
	}{
		{"3", "", "this weir knows 2", []dynamodb.Step{given}},
		{"2", "3", "this weir knows 2", []dynamodb.Step{given}},
		{"1", "", "no migration leads from schema version 1 to 2", nil},
		{"", "", "no schema version", []dynamodb.Step{given}},
	} {
		st := newStage(t)
		it := dynamodb.Item{"PK": &types.AttributeValueMemberS{Value: "_/SYSTEM#"}, "SK": &types.AttributeValueMemberS{Value: "#VERSION"}}
		var err error
		if tt.n == "" {
			_, err = st.fake.DeleteItem(t.Context(), &sdk.DeleteItemInput{TableName: aws.String(stageTable), Key: it})
		} else {
			it["n"] = &types.AttributeValueMemberN{Value: tt.n}
			if tt.least != "" {
				it["min"] = &types.AttributeValueMemberN{Value: tt.least}
			}
			_, err = st.fake.PutItem(t.Context(), &sdk.PutItemInput{TableName: aws.String(stageTable), Item: it})
		}
		if err != nil {
			t.Fatal(err)
		}
		writes := st.writes()
		_, err = dynamodb.MigrateBy(t.Context(), scanned{st.fake}, stageTable, dynamodb.MigrateConfig{}, 2, tt.steps...)
		if known, ok := errors.AsType[*store.Error](err); !ok || !strings.Contains(err.Error(), tt.want) || known.Hint == "" || st.writes() != writes {
			t.Errorf("version %q: %v and %d writes, want %q", tt.n, err, st.writes()-writes, tt.want)
		}
	}
}
