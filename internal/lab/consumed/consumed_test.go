package consumed_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/lab/consumed"
	"github.com/weirlimits/weir/internal/lab/cost"
)

// fake is CloudWatch and DynamoDB with one table.
type fake struct {
	table  types.TableDescription
	hours  map[string][]float64 // by metric and index
	status cwtypes.StatusCode
	fails  string // the call that is not permitted

	asked *cloudwatch.GetMetricDataInput
	pages int
}

func denied(service, call string) error {
	return &smithy.OperationError{ServiceID: service, OperationName: call, Err: &smithy.GenericAPIError{
		Code: "AccessDenied", Message: "User: bob is not authorized",
	}}
}

func (f *fake) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	if f.fails == "DescribeTable" {
		return nil, denied("DynamoDB", "DescribeTable")
	}
	return &dynamodb.DescribeTableOutput{Table: &f.table}, nil
}

// GetMetricData answers one query per page.
func (f *fake) GetMetricData(_ context.Context, in *cloudwatch.GetMetricDataInput, _ ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error) {
	if f.fails == "GetMetricData" {
		return nil, denied("CloudWatch", "GetMetricData")
	}
	f.asked, f.pages = in, f.pages+1
	page := len(aws.ToString(in.NextToken))
	q := in.MetricDataQueries[page]
	var name strings.Builder
	name.WriteString(*q.MetricStat.Metric.MetricName)
	for _, d := range q.MetricStat.Metric.Dimensions {
		if *d.Name == "GlobalSecondaryIndexName" {
			name.WriteString("/" + *d.Value)
		}
	}
	out := &cloudwatch.GetMetricDataOutput{MetricDataResults: []cwtypes.MetricDataResult{{Id: q.Id, Values: f.hours[name.String()], StatusCode: f.status}}}
	if page+1 < len(in.MetricDataQueries) {
		out.NextToken = aws.String(strings.Repeat("x", page+1))
	}
	return out, nil
}

var now = time.Date(2026, 11, 28, 12, 34, 0, 0, time.UTC)

// limits is a table of 2 GB with an index.
func limits(made time.Time) *fake {
	return &fake{
		table: types.TableDescription{
			CreationDateTime: &made, TableSizeBytes: aws.Int64(2e9),
			GlobalSecondaryIndexes: []types.GlobalSecondaryIndexDescription{{IndexName: aws.String("all"), IndexSizeBytes: aws.Int64(5e8)}},
		},
		hours: map[string][]float64{
			"ConsumedWriteCapacityUnits": {1e6, 3e6}, "ConsumedReadCapacityUnits": {4e5}, "ConsumedWriteCapacityUnits/all": {2e4},
		},
		status: cwtypes.StatusCodeComplete,
	}
}

// TestOf: the units of table and indexes are summed over all pages, for whole hours.
func TestOf(t *testing.T) {
	t.Parallel()
	f := limits(now.AddDate(-1, 0, 0))
	m, err := consumed.Of(t.Context(), f, f, "limits", 4, now)
	if err != nil {
		t.Fatal(err)
	}
	to := now.Truncate(time.Hour)
	want := cost.Measured{
		Table: "limits", From: to.AddDate(0, 0, -4), To: to, Bytes: 25e8,
		Parts: []cost.MeasuredPart{{Write: 4e6, Read: 4e5}, {Index: "all", Write: 2e4}},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	if f.pages != 4 || !f.asked.StartTime.Equal(want.From) || !f.asked.EndTime.Equal(to) || *f.asked.MetricDataQueries[0].MetricStat.Period != 3600 {
		t.Errorf("%d pages of %+v", f.pages, f.asked)
	}
}

// TestCapacity: provisioned capacity is that of the table and of its indexes.
func TestCapacity(t *testing.T) {
	t.Parallel()
	f := limits(now.AddDate(-1, 0, 0))
	units := &types.ProvisionedThroughputDescription{ReadCapacityUnits: aws.Int64(5), WriteCapacityUnits: aws.Int64(7)}
	f.table.ProvisionedThroughput, f.table.GlobalSecondaryIndexes[0].ProvisionedThroughput = units, units
	if m, err := consumed.Of(t.Context(), f, f, "limits", 4, now); err != nil || m.ReadCapacity != 10 || m.WriteCapacity != 14 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestYoung: a table that is younger than the days is measured since it was created.
func TestYoung(t *testing.T) {
	t.Parallel()
	f := limits(now.Truncate(time.Hour).Add(-6 * time.Hour))
	m, err := consumed.Of(t.Context(), f, f, "limits", 4, now)
	if err != nil || m.Days() != 0.25 {
		t.Errorf("%g days, %v", m.Days(), err)
	}
	f = limits(now.Add(-80 * time.Minute))
	if _, err := consumed.Of(t.Context(), f, f, "limits", 4, now); err == nil || !strings.Contains(err.Error(), "table limits is too new: it has no full hour") {
		t.Error(err)
	}
}

// TestDenied: an error names the permission that is missing.
func TestDenied(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fails  string
		status cwtypes.StatusCode
		want   string
	}{
		{"DescribeTable", "", "DynamoDB DescribeTable: AccessDenied: User: bob is not authorized: the caller needs dynamodb:DescribeTable"},
		{"GetMetricData", "", "CloudWatch GetMetricData: AccessDenied: User: bob is not authorized: the caller needs cloudwatch:GetMetricData"},
		{"", cwtypes.StatusCodeForbidden, "CloudWatch GetMetricData: Forbidden: the caller needs cloudwatch:GetMetricData"},
		{"", cwtypes.StatusCodeInternalError, "CloudWatch GetMetricData: InternalError: repeat the command"},
	} {
		f := limits(now.AddDate(-1, 0, 0))
		f.fails, f.status = tt.fails, tt.status
		if _, err := consumed.Of(t.Context(), f, f, "limits", 4, now); err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}
