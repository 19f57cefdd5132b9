package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// Booking configures [Book].
type Booking struct {
	Retention store.Retention
	Log       *slog.Logger
	Started   func(what string) // is called once, when booking begins

	Every time.Duration // between two readings; 0: the default of a table

	// For a DynamoDB table.
	Windows      []store.Window // the types to book; empty: all
	Without      []string       // resources to leave out
	EnableStream bool           // turns on the table's stream if it is off
	NoSplit      bool           // leaves hot buckets as they are

	// For a Redis store.
	Once bool // scans once and returns
}

// Book books the usage of a DynamoDB table or a Redis store until ctx ends.
func Book(ctx context.Context, address secret.Address, b Booking) error {
	k, err := kindOf(address)
	if err == nil && k.book == nil {
		err = storeurl.Mistakef(
			"store %q keeps usage itself: weir aggregate is only for a DynamoDB table or a Redis store", address,
		)
	}
	if err != nil {
		return err
	}
	return k.book(ctx, address, &b)
}

func bookRedis(ctx context.Context, address secret.Address, b *Booking) error {
	s, err := storeurl.OpenRedis(ctx, address)
	if err != nil {
		return err
	}
	defer s.Close()
	if b.Once {
		return s.Ledger(b.Retention).Once(ctx, b.Log)
	}
	b.Started("booking usage from the buckets")
	return s.Ledger(b.Retention).Run(ctx, b.Every, b.Log)
}

func bookDynamo(ctx context.Context, address secret.Address, b *Booking) error {
	d, err := storeurl.ParseDynamoDB(address)
	if err != nil {
		return err
	}
	st, cfg, err := d.Open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	arn, err := streamOf(ctx, d.Client(cfg), d.Table, b.EnableStream)
	if err != nil {
		return err
	}
	r := &stream.Reader{
		Config: stream.Config{
			Store: st, NoSplit: b.NoSplit, Log: b.Log,
			Metering: dynamodb.Metering{Retention: b.Retention, Windows: b.Windows, Without: b.Without},
		},
		ARN: arn, Poll: b.Every, Streams: streamsOf(&d, cfg),
	}
	b.Started("reading the stream of " + d.Table)
	return r.Run(ctx)
}

// aggregatorFinding reports how far weir aggregate is behind a table's stream.
func aggregatorFinding(ctx context.Context, d *storeurl.DynamoDB, arn string) Finding {
	st, cfg, err := d.Open(ctx)
	if err != nil {
		return lagFinding(0, false, err)
	}
	defer st.Close()
	r := &stream.Reader{Config: stream.Config{Store: st}, ARN: arn, Streams: streamsOf(d, cfg)}
	return lagFinding(r.Lag(ctx, time.Now().Add(st.Skew())))
}

// streamsOf returns a client of streams.
func streamsOf(d *storeurl.DynamoDB, cfg aws.Config) *dynamodbstreams.Client {
	return dynamodbstreams.NewFromConfig(cfg, func(o *dynamodbstreams.Options) {
		if d.Endpoint != "" {
			o.BaseEndpoint = &d.Endpoint
		}
	})
}

// streamOf returns the ARN of a table's stream. If the stream is off, enable turns it on.
func streamOf(ctx context.Context, client *awsdynamodb.Client, table string, enable bool) (string, error) {
	bad := func(err error, hint string) error {
		return &store.Error{Op: "aggregate", Key: table, Err: err, Hint: hint}
	}
	out, err := client.DescribeTable(ctx, &awsdynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return "", bad(err, "")
	}
	spec := out.Table.StreamSpecification
	if spec == nil || !aws.ToBool(spec.StreamEnabled) {
		if !enable {
			return "", bad(errors.New("the table's stream is off"), "weir aggregate --enable-stream turns it on")
		}
		changed, err := client.UpdateTable(ctx, &awsdynamodb.UpdateTableInput{
			TableName: &table, StreamSpecification: &types.StreamSpecification{
				StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
			},
		})
		if err != nil {
			return "", bad(err, "")
		}
		return aws.ToString(changed.TableDescription.LatestStreamArn), nil
	}
	if spec.StreamViewType != types.StreamViewTypeNewAndOldImages {
		return "", bad(
			fmt.Errorf("the table's stream has the view type %s", spec.StreamViewType),
			"turn it off, then on again with NEW_AND_OLD_IMAGES",
		)
	}
	return aws.ToString(out.Table.LatestStreamArn), nil
}
