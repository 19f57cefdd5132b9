package stack_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/cloudtest"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store/dynamodb"
)

// filtersOf returns the filters of a function's event source.
func filtersOf(t *testing.T, r cloudtest.Resolved, id string) []string {
	t.Helper()
	criteria := r.Resources[id]["Properties"].(map[string]any)["FilterCriteria"].(map[string]any)
	var all []string
	for _, f := range criteria["Filters"].([]any) {
		all = append(all, f.(map[string]any)["Pattern"].(string))
	}
	return all
}

// image is an item as a function receives it.
func image(t *testing.T, in map[string]streamtypes.AttributeValue) map[string]any {
	t.Helper()
	out := map[string]any{}
	for name, v := range in {
		switch v := v.(type) {
		case *streamtypes.AttributeValueMemberS:
			out[name] = map[string]any{"S": v.Value}
		case *streamtypes.AttributeValueMemberN:
			out[name] = map[string]any{"N": v.Value}
		case *streamtypes.AttributeValueMemberB:
			out[name] = map[string]any{"B": v.Value}
		default:
			t.Fatalf("attribute %s is %T", name, v)
		}
	}
	return out
}

// records reads the table's stream, and returns each record as a function receives it.
func (tb *tableOf) records() []map[string]any {
	tb.t.Helper()
	ctx := tb.t.Context()
	streams := dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: aws.String(dynamotest.Engine(tb.t)), Region: "us-east-1", Credentials: tb.direct.Options().Credentials,
	})
	table, err := tb.direct.DescribeTable(ctx, &awsdynamodb.DescribeTableInput{TableName: &tb.name})
	must(tb.t, err)
	arn := table.Table.LatestStreamArn
	stream, err := streams.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: arn})
	must(tb.t, err)
	var all []map[string]any
	for _, shard := range stream.StreamDescription.Shards {
		at, err := streams.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
			StreamArn: arn, ShardId: shard.ShardId, ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
		})
		must(tb.t, err)
		for next := at.ShardIterator; next != nil; {
			page, err := streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: next})
			must(tb.t, err)
			if next = page.NextShardIterator; len(page.Records) == 0 {
				break
			}
			for _, r := range page.Records {
				all = append(all, map[string]any{"eventName": string(r.EventName), "eventSource": "aws:dynamodb", "dynamodb": map[string]any{
					"Keys": image(tb.t, r.Dynamodb.Keys), "NewImage": image(tb.t, r.Dynamodb.NewImage), "OldImage": image(tb.t, r.Dynamodb.OldImage),
					"SequenceNumber": *r.Dynamodb.SequenceNumber,
				}})
			}
		}
	}
	return all
}

func (tb *tableOf) stream() {
	tb.t.Helper()
	_, err := tb.direct.UpdateTable(tb.t.Context(), &awsdynamodb.UpdateTableInput{TableName: &tb.name, StreamSpecification: &types.StreamSpecification{
		StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
	}})
	must(tb.t, err)
}

// TestFilters checks the filters against a table's stream, after weir has done everything that it does.
func TestFilters(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.stream()
	lim := tb.limiter(tb.direct, weir.Config{})
	tb.prepare(lim)
	decide(t, lim, "key")
	must(t, lim.Close())
	lim = tb.limiter(tb.direct, weir.Config{})
	_, err := admin.New(lim).Namespaces.Create(t.Context(), "tenant")
	must(t, err)
	configure(t, lim)
	tb.dropAudit()

	text := resolved(t, stack.Weir, stack.Values{"ConfigFlow": "true"})
	passed := map[string]map[string]int{"aggregator": {}, "config": {}}
	for _, r := range tb.records() {
		keys := r["dynamodb"].(map[string]any)["Keys"].(map[string]any)
		kind := keys["PK"].(map[string]any)["S"].(string)
		kind = kind[strings.Index(kind, "/")+1:]
		kind, _, _ = strings.Cut(kind, "#")
		sort := strings.SplitN(keys["SK"].(map[string]any)["S"].(string), "#", 3)[1]
		as := []map[string]any{r}
		pk, sk := keys["PK"].(map[string]any)["S"].(string), keys["SK"].(map[string]any)["S"].(string)
		if _, ok := dynamodb.ConfigKey(pk, sk); ok {
			if ok, err := cloudtest.Matches(filtersOf(t, text, "ConfigSource")[0], r); !ok || err != nil {
				t.Errorf("the function of changes is not sent %s %s (%v)", pk, sk, err)
			}
		}
		if r["eventName"] == "REMOVE" { // the same record with a deletion by DynamoDB itself
			expired := maps.Clone(r)
			expired["userIdentity"] = map[string]any{"type": "Service", "principalId": "dynamodb.amazonaws.com"}
			expired["expired"] = true
			as = append(as, expired)
		}
		for _, r := range as {
			for name, id := range map[string]string{"aggregator": "AggregatorSource", "config": "ConfigSource"} {
				for _, f := range filtersOf(t, text, id) {
					ok, err := cloudtest.Matches(f, r)
					must(t, err)
					what := kind + "/" + sort
					if r["expired"] != nil {
						what += " expired"
					}
					passed[name][what] += 0
					if ok {
						passed[name][what]++
					}
				}
			}
		}
	}
	for name, want := range map[string][]string{
		"aggregator": {"TALLY/COUNTS", "BUCKET/STATE", "BUCKET/STATE expired", "AUDIT/AUDIT expired"},
		"config":     {"ENTITY/META", "ENTITY/META expired", "ENTITY/CONFIG", "ENTITY/CONFIG expired", "RESOURCE/CONFIG", "RESOURCE/CONFIG expired", "SYSTEM/CONFIG", "SYSTEM/NAMESPACE", "SYSTEM/NSID", "MANIFEST/META", "MANIFEST/META expired"},
	} {
		var got []string
		for what, n := range passed[name] {
			if n > 0 {
				got = append(got, what)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s is sent %q of %v, want %q", name, got, slices.Sorted(maps.Keys(passed[name])), want)
		}
	}
}

// dropAudit deletes the audit events, which otherwise only expiry does.
func (tb *tableOf) dropAudit() {
	tb.t.Helper()
	all, err := tb.direct.Scan(tb.t.Context(), &awsdynamodb.ScanInput{TableName: &tb.name})
	must(tb.t, err)
	for _, it := range all.Items {
		if sk, ok := it["SK"].(*types.AttributeValueMemberS); ok && strings.HasPrefix(sk.Value, "#AUDIT") {
			_, err := tb.direct.DeleteItem(tb.t.Context(), &awsdynamodb.DeleteItemInput{
				TableName: &tb.name, Key: map[string]types.AttributeValue{"PK": it["PK"], "SK": it["SK"]},
			})
			must(tb.t, err)
		}
	}
}
