package faultproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a table with a key "pk", a direct client, and a client behind a proxy that verifies checksums.
type rig struct {
	*testing.T

	table           string
	proxy           *faultproxy.Proxy
	honest, through *dynamodb.Client
}

func setup(t *testing.T, rules ...faultproxy.Rule) *rig {
	t.Helper()
	endpoint := dynamotest.Engine(t)
	r := &rig{T: t, table: dynamotest.Table(t), honest: dynamotest.Client(t, endpoint)}
	if _, err := r.honest.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &r.table, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("pk"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("pk"), AttributeType: types.ScalarAttributeTypeS}},
	}); err != nil {
		t.Fatal(err)
	}
	r.proxy = faultproxy.New(t, endpoint, faultproxy.Config{Seed: 1, Rules: rules})
	r.through = dynamotest.Client(t, r.proxy.URL, func(o *dynamodb.Options) { o.DisableValidateResponseChecksum = false })
	return r
}

func key(pk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}
}

// add adds 1 to the item pk.
func (r *rig) add(ctx context.Context, pk string) error {
	_, err := r.through.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &r.table, Key: key(pk), UpdateExpression: new("ADD n :one"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
	})
	return err
}

// got returns n of the item pk, read without the proxy; empty if missing.
func (r *rig) got(pk string) string {
	r.Helper()
	out, err := r.honest.GetItem(r.Context(), &dynamodb.GetItemInput{TableName: &r.table, Key: key(pk), ConsistentRead: new(true)})
	if err != nil {
		r.Fatal(err)
	}
	if n, ok := out.Item["n"].(*types.AttributeValueMemberN); ok {
		return n.Value
	}
	return ""
}

func always(kind faultproxy.Kind) faultproxy.Rule {
	return faultproxy.Rule{Kind: kind, Probability: 1}
}

func TestFaultsOfOneWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind    faultproxy.Kind
		applied string
		want    func(error) bool
	}{
		{faultproxy.DropBefore, "", func(err error) bool { return errors.Is(err, io.EOF) }},
		{faultproxy.DropAfter, "1", func(err error) bool { return errors.Is(err, io.EOF) }},
		{faultproxy.InternalError, "", func(err error) bool {
			_, ok := errors.AsType[*types.InternalServerError](err)
			return ok
		}},
		{faultproxy.Throttling, "", func(err error) bool {
			e, ok := errors.AsType[*types.ThrottlingException](err)
			return ok && *e.ThrottlingReasons[0].Reason == "TableWriteKeyRangeThroughputExceeded"
		}},
		{faultproxy.Throughput, "", func(err error) bool {
			e, ok := errors.AsType[*types.ProvisionedThroughputExceededException](err)
			return ok && *e.ThrottlingReasons[0].Reason == "TableWriteKeyRangeThroughputExceeded" && *e.ThrottlingReasons[0].Resource != ""
		}},
		{faultproxy.Conflict, "", func(err error) bool {
			_, ok := errors.AsType[*types.TransactionConflictException](err)
			return ok
		}},
		{faultproxy.Unprocessed, "1", func(err error) bool { return err == nil }},
	} {
		t.Run(string(tt.kind), func(t *testing.T) {
			t.Parallel()
			r := setup(t, always(tt.kind))
			if err := r.add(t.Context(), "a"); !tt.want(err) {
				t.Errorf("answered %v", err)
			}
			if got := r.got("a"); got != tt.applied {
				t.Errorf("the item has %q, want %q", got, tt.applied)
			}
			hits := 1
			if tt.kind == faultproxy.Unprocessed {
				hits = 0
			}
			if got := r.proxy.Counts()[tt.kind]; got != hits {
				t.Errorf("counted %d, want %d", got, hits)
			}
			r.proxy.Set()
			if err := r.add(t.Context(), "b"); err != nil || r.got("b") != "1" {
				t.Errorf("without rules: %v", err)
			}
		})
	}
}

func TestConflictOfTransaction(t *testing.T) {
	t.Parallel()
	r := setup(t, always(faultproxy.Conflict))
	var items []types.TransactWriteItem
	for _, pk := range []string{"a", "b", "c"} {
		items = append(items, types.TransactWriteItem{Put: &types.Put{TableName: &r.table, Item: key(pk)}})
	}
	_, err := r.through.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items})
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok || len(cancelled.CancellationReasons) != 3 {
		t.Fatalf("answered %v", err)
	}
	codes := make(map[string]int)
	for _, reason := range cancelled.CancellationReasons {
		codes[*reason.Code]++
	}
	if codes["TransactionConflict"] != 1 || codes["None"] != 2 {
		t.Errorf("reasons %v", codes)
	}
}

// TestUnprocessed repeats what was left until nothing is: every requested key is read, and read once.
func TestUnprocessed(t *testing.T) {
	t.Parallel()
	r := setup(t, always(faultproxy.Unprocessed))
	var keys []map[string]types.AttributeValue
	for i := range 20 {
		keys = append(keys, key(fmt.Sprint(i)))
		if _, err := r.honest.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &r.table, Item: keys[i]}); err != nil {
			t.Fatal(err)
		}
	}
	rounds, got := 0, make(map[string]int)
	for left := map[string]types.KeysAndAttributes{r.table: {Keys: keys, ConsistentRead: new(true)}}; len(left) > 0; rounds++ {
		out, err := r.through.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: left})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range out.Responses[r.table] {
			got[it["pk"].(*types.AttributeValueMemberS).Value]++
		}
		if left = out.UnprocessedKeys; len(left) > 0 && left[r.table].ConsistentRead == nil {
			t.Error("unprocessed keys lost how they were to be read")
		}
	}
	for i := range 20 {
		if got[fmt.Sprint(i)] != 1 {
			t.Errorf("item %d was read %d times", i, got[fmt.Sprint(i)])
		}
	}
	if hits := r.proxy.Counts()[faultproxy.Unprocessed]; hits != rounds-1 {
		t.Errorf("%d of %d rounds were cut short, want all but the last", hits, rounds)
	}
}

func TestDelayEndsWithItsClient(t *testing.T) {
	t.Parallel()
	r := setup(t, faultproxy.Rule{Kind: faultproxy.Delay, Probability: 1, Delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // real time: a connection is watched
	defer cancel()
	if err := r.add(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("answered %v", err)
	}
	if r.got("a") != "" {
		t.Error("the engine saw what was held back")
	}
}

func TestDelayThenFault(t *testing.T) {
	t.Parallel()
	r := setup(t, faultproxy.Rule{Kind: faultproxy.Delay, Probability: 1, Delay: time.Millisecond}, always(faultproxy.InternalError))
	if err := r.add(t.Context(), "a"); err == nil {
		t.Error("no fault after the delay")
	}
	if got := r.proxy.Counts(); got[faultproxy.Delay] != 1 || got[faultproxy.InternalError] != 1 {
		t.Errorf("counted %v", got)
	}
}

func TestRuleOfOneOperation(t *testing.T) {
	t.Parallel()
	rule := always(faultproxy.InternalError)
	rule.Operation = "GetItem"
	r := setup(t, rule)
	if err := r.add(t.Context(), "a"); err != nil {
		t.Errorf("another operation: %v", err)
	}
	if _, err := r.through.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &r.table, Key: key("a")}); err == nil {
		t.Error("the operation passed")
	}
}

// TestSameSeedSameFaults: the same seed gives the same faults, about as many as the probability predicts.
func TestSameSeedSameFaults(t *testing.T) {
	t.Parallel()
	run := func() (pattern string) {
		r := setup(t, faultproxy.Rule{Kind: faultproxy.InternalError, Probability: 0.3})
		for range 100 {
			err := r.add(t.Context(), "a")
			if _, ok := errors.AsType[smithy.APIError](err); err != nil && !ok {
				t.Fatal(err)
			}
			pattern += fmt.Sprint(err == nil, " ")
		}
		if hits := r.proxy.Counts()[faultproxy.InternalError]; hits < 15 || hits > 45 {
			t.Errorf("%d of 100 were hit at 30 %%", hits)
		}
		return pattern
	}
	if a, b := run(), run(); a != b {
		t.Errorf("hit differently:\n%s\n%s", a, b)
	}
}
