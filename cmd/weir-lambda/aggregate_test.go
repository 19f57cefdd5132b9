package main

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/aws/archive"
	"github.com/weirlimits/weir/internal/aws/archive/s3bucket"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/mototest"
	"github.com/weirlimits/weir/store/dynamodb"
)

type broken struct{}

func (broken) Put(context.Context, string, []byte) error { return errors.New("no bucket") }

// A batch is redelivered from the first record on which either task failed; without an archive, the other handler's
// result stands.
func TestArchiving(t *testing.T) {
	t.Parallel()
	next := func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
		return events.DynamoDBEventResponse{BatchItemFailures: []events.DynamoDBBatchItemFailure{{ItemIdentifier: "7"}, {ItemIdentifier: "8"}}}, nil
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	batch := events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{event("8"), event("9")}}
	for _, c := range []struct {
		to   archive.Putter
		want []string
	}{{nil, []string{"7", "8"}}, {archive.Dir(t.TempDir()), []string{"7", "8"}}, {broken{}, []string{"7", "8", "9"}}} {
		var a *archive.Archiver
		if c.to != nil {
			a = &archive.Archiver{To: c.to, KeyOf: dynamodb.AuditKey}
		}
		resp, err := archiving(next, a, log)(t.Context(), batch)
		must(t, err)
		got := make([]string, len(resp.BatchItemFailures))
		for i, item := range resp.BatchItemFailures {
			got[i] = item.ItemIdentifier
		}
		if len(got) != len(c.want) || got[len(got)-1] != c.want[len(got)-1] {
			t.Errorf("failed %v, want %v", got, c.want)
		}
	}
}

// event is an audit event that has expired.
func event(number string) events.DynamoDBEventRecord {
	return events.DynamoDBEventRecord{
		EventName:    "REMOVE",
		UserIdentity: &events.DynamoDBUserIdentity{Type: "Service", PrincipalID: "dynamodb.amazonaws.com"},
		Change: events.DynamoDBStreamRecord{
			SequenceNumber: number,
			Keys: map[string]events.DynamoDBAttributeValue{
				"PK": events.NewStringAttribute("default/AUDIT#system"), "SK": events.NewStringAttribute("#AUDIT#" + number),
			},
			OldImage: map[string]events.DynamoDBAttributeValue{"d": events.NewBinaryAttribute([]byte(`{"at":"2026-08-01T00:00:00Z"}`))},
		},
	}
}

// The function books what was spent and archives what has expired, and a second delivery changes nothing.
func TestAggregate(t *testing.T) {
	t.Parallel()
	endpoint, table := newTable(t)
	moto := mototest.Config(t)
	objects := s3.NewFromConfig(moto, func(o *s3.Options) { o.UsePathStyle = true })
	bucket := "weir-lambda-archive"
	_, err := objects.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	must(t, err)
	st, err := dynamodb.Open(t.Context(), dynamodb.Config{Client: dynamotest.Client(t, endpoint), Table: table})
	must(t, err)
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: time.Minute, DecideWithin: time.Minute})
	must(t, err)
	defer func() { _ = lim.Close() }()
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 100)))
	_, err = lim.Acquire(t.Context(), weir.Request{Entity: "ann", Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 7}})
	must(t, err)

	var batch events.DynamoDBEvent
	out, err := dynamotest.Client(t, endpoint).Scan(t.Context(), &sdk.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	must(t, err)
	for i, it := range out.Items {
		image := make(map[string]events.DynamoDBAttributeValue)
		for name, v := range it {
			switch v := v.(type) {
			case *types.AttributeValueMemberS:
				image[name] = events.NewStringAttribute(v.Value)
			case *types.AttributeValueMemberN:
				image[name] = events.NewNumberAttribute(v.Value)
			case *types.AttributeValueMemberB:
				image[name] = events.NewBinaryAttribute(v.Value)
			}
		}
		r := event(strconv.Itoa(i + 1))
		r.Change.Keys = map[string]events.DynamoDBAttributeValue{"PK": image["PK"], "SK": image["SK"]}
		r.Change.OldImage = image
		if strings.Contains(image["PK"].String(), "/BUCKET#") {
			r.EventName, r.UserIdentity, r.Change.OldImage, r.Change.NewImage = "INSERT", nil, nil, image
		}
		r.Change.ApproximateCreationDateTime.Time = time.Now()
		batch.Records = append(batch.Records, r)
	}
	f := start(t, "WEIR_LAMBDA=aggregate", "WEIR_TABLE="+table, "WEIR_ARCHIVE_BUCKET="+bucket, "WEIR_USAGE_RETENTION_MONTHLY=forever",
		"AWS_ENDPOINT_URL_DYNAMODB="+endpoint, "AWS_ENDPOINT_URL_S3="+*moto.BaseEndpoint)
	for range 2 {
		if resp := invoke[events.DynamoDBEventResponse](f, batch); len(resp.BatchItemFailures) > 0 {
			t.Fatalf("failed: %v", resp.BatchItemFailures)
		}
	}
	archived, err := archive.Read(t.Context(), s3bucket.New(objects, bucket, ""), archive.Query{Namespace: "default"})
	if err != nil || len(archived) != 1 || archived[0].Action != "limits.set" {
		t.Errorf("archived %+v, error %v", archived, err)
	}
	used, err := admin.New(lim).Usage.Sum(t.Context(), admin.UsageQuery{Window: admin.Daily, By: admin.ByEntity, Entity: "ann"})
	if err != nil || len(used.Total.Limits) != 1 || used.Total.Limits[0].Debited != 7 {
		t.Errorf("used %+v, error %v", used, err)
	}
}
