package aggregate

import (
	"context"
	"iter"
	"log/slog"
	"slices"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// Config configures a [Handler] or a [Reader]. Store is required.
type Config struct {
	// Store is the store on the table whose stream is read.
	Store *dynamodb.Store
	// Retention is how long usage windows are kept.
	Retention store.Retention
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
	b := &booker{cfg: cfg, ledger: cfg.Store.Ledger(cfg.Retention), log: cfg.Log}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	return b
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
				b.log.LogAttrs(
					ctx, slog.LevelError, "a record was not counted", slog.String("record", number),
					slog.String("error", err.Error()),
				)
			}
		}
		return resp, nil
	}
}

// converted yields records in the store's form, one at a time; converting all of them would double the memory.
func converted(records []events.DynamoDBEventRecord) iter.Seq[dynamodb.StreamRecord] {
	return func(yield func(dynamodb.StreamRecord) bool) {
		for i := range records {
			c, r := &records[i].Change, dynamodb.StreamRecord{}
			if concerns(c.Keys) {
				r = dynamodb.StreamRecord{
					Keys: attributes(c.Keys), Old: attributes(c.OldImage), New: attributes(c.NewImage),
					Created: c.ApproximateCreationDateTime.Time,
				}
			}
			if !yield(r) {
				return
			}
		}
	}
}

// concerns reports whether an item may affect usage. Other items in the table need not be converted.
func concerns(keys map[string]events.DynamoDBAttributeValue) bool {
	sk, ok := keys["SK"]
	return ok && sk.DataType() == events.DataTypeString && slices.Contains([]string{"#STATE", "#COUNTS"}, sk.String())
}

// attributes converts an image to the SDK's form. Types that weir does not write become a value that no reader accepts.
func attributes(image map[string]events.DynamoDBAttributeValue) map[string]types.AttributeValue {
	if len(image) == 0 {
		return nil
	}
	out := make(map[string]types.AttributeValue, len(image))
	for name, v := range image {
		switch v.DataType() {
		case events.DataTypeString:
			out[name] = &types.AttributeValueMemberS{Value: v.String()}
		case events.DataTypeNumber:
			out[name] = &types.AttributeValueMemberN{Value: v.Number()}
		case events.DataTypeBinary:
			out[name] = &types.AttributeValueMemberB{Value: v.Binary()}
		default:
			out[name] = &types.AttributeValueMemberNULL{Value: true}
		}
	}
	return out
}
