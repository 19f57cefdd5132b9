package governor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// TableDescriber is the part of a client that [Discover] needs.
type TableDescriber interface {
	// DescribeTable is the method of the DynamoDB client.
	DescribeTable(
		context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options),
	) (*dynamodb.DescribeTableOutput, error)
}

// The capacity of a new on-demand table, used if nothing else is known.
const (
	onDemandRead  = 12_000
	onDemandWrite = 4_000
)

// Discover returns limits for tables and their global secondary indexes: a share, above 0 and at most 1, of the
// provisioned throughput of each; for an on-demand table, of its maximum throughput if it has one, otherwise of its
// warm throughput. It reads once; see [Discovered].
//
// Errors: one or more [*ConfigError], joined: for the share, and for tables that do not exist or cannot be described.
func Discover(ctx context.Context, client TableDescriber, share float64, tables ...string) (map[string]Limits, error) {
	if !(share > 0 && share <= 1) { // also rejects NaN
		return nil, &ConfigError{Field: "share", Reason: fmt.Sprintf("must be above 0 and at most 1: %v", share)}
	}
	if len(tables) == 0 {
		return nil, &ConfigError{Field: "tables", Reason: "must name at least one"}
	}
	limits := make(map[string]Limits, len(tables))
	var errs []error
	for _, name := range tables {
		out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
		var missing *types.ResourceNotFoundException
		switch {
		case errors.As(err, &missing):
			errs = append(errs, &ConfigError{
				Field:  "tables",
				Reason: fmt.Sprintf("name %q, which does not exist in the client's region and account", name), Err: err,
			})
		case err != nil:
			errs = append(errs, &ConfigError{
				Field: "tables", Reason: fmt.Sprintf("name %q, which cannot be described: %v", name, err), Err: err,
			})
		default:
			t := discovered(out.Table, share)
			if aws.ToString(out.Table.TableName) != "" {
				name = *out.Table.TableName // not the ARN
			}
			limits[name] = t
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return limits, nil
}

func discovered(t *types.TableDescription, share float64) Limits {
	var warm warmth
	if w := t.WarmThroughput; w != nil {
		warm = warmth{w.ReadUnitsPerSecond, w.WriteUnitsPerSecond}
	}
	limits := limitsOf(t.ProvisionedThroughput, t.OnDemandThroughput, warm, share)
	for _, x := range t.GlobalSecondaryIndexes {
		warm = warmth{}
		if w := x.WarmThroughput; w != nil {
			warm = warmth{w.ReadUnitsPerSecond, w.WriteUnitsPerSecond}
		}
		if limits.Indexes == nil {
			limits.Indexes = make(map[string]Limits, len(t.GlobalSecondaryIndexes))
		}
		limits.Indexes[aws.ToString(x.IndexName)] = limitsOf(x.ProvisionedThroughput, x.OnDemandThroughput, warm, share)
	}
	return limits
}

// warmth is the warm throughput of a table or index.
type warmth struct{ read, write *int64 }

func limitsOf(
	p *types.ProvisionedThroughputDescription, d *types.OnDemandThroughput, warm warmth, share float64,
) Limits {
	p = cmp.Or(p, &types.ProvisionedThroughputDescription{})
	d = cmp.Or(d, &types.OnDemandThroughput{})
	return Limits{
		ReadUnits:  share * first(onDemandRead, p.ReadCapacityUnits, d.MaxReadRequestUnits, warm.read),
		WriteUnits: share * first(onDemandWrite, p.WriteCapacityUnits, d.MaxWriteRequestUnits, warm.write),
	}
}

// first returns the first figure that is set: the provisioned figures of on-demand tables are 0, and a maximum of -1
// means none.
func first(otherwise float64, figures ...*int64) float64 {
	for _, f := range figures {
		if f != nil && *f > 0 {
			return float64(*f)
		}
	}
	return otherwise
}
