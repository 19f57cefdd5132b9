package stream

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/weirlimits/weir/store/dynamodb"
)

// Config configures a [Handler] or a [Reader]. Store is required.
type Config struct {
	// Store is the store on the table whose stream is read.
	Store *dynamodb.Store
	// Metering is what is booked.
	Metering dynamodb.Metering
	// NoSplit warns about shards that are written to too often, but does not split them.
	NoSplit bool
	// Log receives hot buckets and records that could not be booked. Nil discards them.
	Log *slog.Logger
}

// booker books batches, and handles hot buckets.
type booker struct {
	cfg    Config
	ledger *dynamodb.Ledger
	log    *slog.Logger
}

func newBooker(cfg Config) *booker {
	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &booker{cfg: cfg, ledger: cfg.Store.Ledger(cfg.Metering), log: log}
}

// book books records. It returns the errors of those that were not counted, by index in the batch.
func (b *booker) book(ctx context.Context, records iter.Seq[dynamodb.StreamRecord]) (map[int]error, error) {
	booked, err := b.ledger.Book(ctx, records)
	if err != nil {
		return nil, err
	}
	for _, h := range booked.Hot {
		b.cool(ctx, h)
	}
	return booked.Failed, nil
}

// failure returns the attributes of what failed: of which shard or record, and why.
func failure(key, value string, err error) []slog.Attr {
	return []slog.Attr{slog.String(key, value), slog.String("error", err.Error())}
}

// cool splits a shard that is written to too often, or logs why it does not. A failure is no reason to read records
// again: the shard stays hot, or the processes that write to it split it.
func (b *booker) cool(ctx context.Context, h dynamodb.Hot) {
	attrs := []slog.Attr{
		slog.String("namespace", h.Bucket.Namespace), slog.String("entity", h.Bucket.Entity),
		slog.String("resource", h.Bucket.Resource),
		slog.Int("shard", h.Shard), slog.Int("shards", h.Shards),
	}
	split, err := false, error(nil)
	if !b.cfg.NoSplit {
		var n int
		n, err = b.cfg.Store.Split(ctx, h.Bucket, 2*h.Shards)
		split = n > h.Shards
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	b.log.LogAttrs(ctx, slog.LevelWarn, "hot bucket", append(attrs, slog.Bool("split", split))...)
}

// Handler returns a function that books the batches of an event source mapping and returns partial responses: if a
// record could not be counted, it and all later records are delivered again, which counts nothing twice. A record
// that cannot be read fails alone. If the function returns an error, nothing was counted.
func Handler(cfg Config) func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
	b := newBooker(cfg)
	return func(ctx context.Context, e events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
		failed, err := b.book(ctx, converted(e.Records))
		if err != nil {
			return events.DynamoDBEventResponse{}, err
		}
		resp := events.DynamoDBEventResponse{BatchItemFailures: []events.DynamoDBBatchItemFailure{}}
		for i := range e.Records {
			if err, ok := failed[i]; ok {
				number := e.Records[i].Change.SequenceNumber
				resp.BatchItemFailures = append(resp.BatchItemFailures, events.DynamoDBBatchItemFailure{
					ItemIdentifier: number,
				})
				b.log.LogAttrs(ctx, slog.LevelError, "a record was not counted", failure("record", number, err)...)
			}
		}
		return resp, nil
	}
}

// converted yields records in the store's form, one at a time; converting all of them would double the memory.
func converted(records []events.DynamoDBEventRecord) iter.Seq[dynamodb.StreamRecord] {
	return func(yield func(dynamodb.StreamRecord) bool) {
		for i := range records {
			c := &records[i].Change
			if !yield(record(c.Keys, c.OldImage, c.NewImage, c.ApproximateCreationDateTime.Time, attribute)) {
				return
			}
		}
	}
}

// record returns a record in the store's form; an empty one if it does not concern usage.
func record[V any](
	keys, before, after map[string]V, created time.Time, attribute func(V) types.AttributeValue,
) dynamodb.StreamRecord {
	if sk, ok := keys["SK"]; !ok || !dynamodb.Concerns(attribute(sk)) {
		return dynamodb.StreamRecord{}
	}
	return dynamodb.StreamRecord{
		Keys: image(keys, attribute), Old: image(before, attribute), New: image(after, attribute), Created: created,
	}
}

func image[V any](in map[string]V, attribute func(V) types.AttributeValue) map[string]types.AttributeValue {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]types.AttributeValue, len(in))
	for name, v := range in {
		out[name] = attribute(v)
	}
	return out
}

// attribute converts a value of an event. Types that weir does not write become one that no reader accepts.
func attribute(v events.DynamoDBAttributeValue) types.AttributeValue {
	switch v.DataType() {
	case events.DataTypeString:
		return &types.AttributeValueMemberS{Value: v.String()}
	case events.DataTypeNumber:
		return &types.AttributeValueMemberN{Value: v.Number()}
	case events.DataTypeBinary:
		return &types.AttributeValueMemberB{Value: v.Binary()}
	default:
		return &types.AttributeValueMemberNULL{Value: true}
	}
}

// streamed is [attribute] for the types of the streams client.
func streamed(v streamtypes.AttributeValue) types.AttributeValue {
	switch v := v.(type) {
	case *streamtypes.AttributeValueMemberS:
		return &types.AttributeValueMemberS{Value: v.Value}
	case *streamtypes.AttributeValueMemberN:
		return &types.AttributeValueMemberN{Value: v.Value}
	case *streamtypes.AttributeValueMemberB:
		return &types.AttributeValueMemberB{Value: v.Value}
	default:
		return &types.AttributeValueMemberNULL{Value: true}
	}
}
