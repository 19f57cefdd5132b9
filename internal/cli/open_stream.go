package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/weirlimits/weir/internal/aws/aggregate"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// aggregate books usage from the stream of the DynamoDB table until ctx ends.
func (a *app) aggregate(ctx context.Context, flags *aggregateFlags) error {
	retention, err := flags.retention()
	if err != nil {
		return err
	}
	rest, ok := strings.CutPrefix(a.store, "dynamodb:")
	if !ok {
		return usageError{fmt.Errorf("store %q keeps usage itself: weir aggregate is only for a DynamoDB table or a Redis store", a.store)}
	}
	d, err := parseDynamo(a.store, rest)
	if err != nil {
		return err
	}
	cfg, err := d.aws(ctx)
	if err != nil {
		return err
	}
	client := d.client(cfg)
	d.store.Client, d.store.Table = client, d.table
	st, err := dynamodb.Open(ctx, d.store)
	if err != nil {
		return err
	}
	defer st.Close()
	arn, err := streamOf(ctx, client, d.table, flags.enable)
	if err != nil {
		return err
	}
	r := &aggregate.Reader{
		Config: aggregate.Config{Store: st, Retention: retention, NoSplit: flags.noSplit, Log: slog.New(slog.NewTextHandler(a.err.W, nil))},
		ARN:    arn,
		Streams: dynamodbstreams.NewFromConfig(cfg, func(o *dynamodbstreams.Options) {
			if d.endpoint != "" {
				o.BaseEndpoint = &d.endpoint
			}
		}),
	}
	a.err.Printf("reading the stream of %s\n", d.table)
	return r.Run(ctx)
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
		changed, err := client.UpdateTable(ctx, &awsdynamodb.UpdateTableInput{TableName: &table, StreamSpecification: &types.StreamSpecification{
			StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
		}})
		if err != nil {
			return "", bad(err, "")
		}
		return aws.ToString(changed.TableDescription.LatestStreamArn), nil
	}
	if spec.StreamViewType != types.StreamViewTypeNewAndOldImages {
		return "", bad(fmt.Errorf("the table's stream has the view type %s", spec.StreamViewType), "turn it off, then on again with NEW_AND_OLD_IMAGES")
	}
	return aws.ToString(out.Table.LatestStreamArn), nil
}
