package governor

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/governor"
)

// provisioned describes every table alike.
type provisioned struct{ read, write int64 }

// DescribeTable implements [governor.TableDescriber].
func (p *provisioned) DescribeTable(
	_ context.Context, q *dynamodb.DescribeTableInput, _ ...func(*dynamodb.Options),
) (*dynamodb.DescribeTableOutput, error) {
	has := &types.ProvisionedThroughputDescription{ReadCapacityUnits: &p.read, WriteCapacityUnits: &p.write}
	return &dynamodb.DescribeTableOutput{Table: &types.TableDescription{
		TableName: q.TableName, ProvisionedThroughput: has,
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndexDescription{{IndexName: aws.String("by-date"), ProvisionedThroughput: has}},
	}}, nil
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	tables := &provisioned{100, 50}
	got, err := readBudgets(t.Context(), tables, []string{
		"orders/by-date=5:unlimited", "1500:0.5", "orders=10:20", "customers=30%", "orders/by-name=1:1",
	})
	if err != nil {
		t.Fatal(err)
	}
	third := governor.Limits{ReadUnits: 30, WriteUnits: 15}
	shared := third
	shared.Indexes = map[string]governor.Limits{"by-date": third}
	want := governor.Config{ReadUnits: 1500, WriteUnits: 0.5, Tables: map[string]governor.Limits{
		"customers": shared,
		"orders": {ReadUnits: 10, WriteUnits: 20, Indexes: map[string]governor.Limits{
			"by-date": {ReadUnits: 5, WriteUnits: governor.Unlimited}, "by-name": {ReadUnits: 1, WriteUnits: 1},
		}},
	}}
	if diff := cmp.Diff(want, got.Config); diff != "" {
		t.Error(diff)
	}
	tables.read = 1000
	now, err := got.followed[0](t.Context())
	if err != nil || len(got.followed) != 1 || now.Tables["customers"].ReadUnits != 300 {
		t.Errorf("followed: %+v, %v", now, err)
	}
	_, err = readBudgets(t.Context(), tables, []string{"orders=30%", "orders/by-date=5:5"})
	if err == nil || !strings.Contains(err.Error(), "is one of its indexes, too") {
		t.Error(err)
	}
}
