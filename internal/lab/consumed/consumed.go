// Package consumed reads what a DynamoDB table consumed, from CloudWatch.
package consumed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/internal/lab/cost"
)

// Metrics is the part of CloudWatch that is called.
type Metrics interface {
	GetMetricData(
		context.Context, *cloudwatch.GetMetricDataInput, ...func(*cloudwatch.Options),
	) (*cloudwatch.GetMetricDataOutput, error)
}

// Tables is the part of DynamoDB that is called.
type Tables interface {
	DescribeTable(
		context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options),
	) (*dynamodb.DescribeTableOutput, error)
}

// Of reads what a table consumed in the days before now, in whole hours, or since it was created.
func Of(
	ctx context.Context, metrics Metrics, tables Tables, table string, days int, now time.Time,
) (cost.Measured, error) {
	m := cost.Measured{Table: table, To: now.UTC().Truncate(time.Hour)}
	m.From = m.To.AddDate(0, 0, -days)
	out, err := tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return m, explained(err, "dynamodb:DescribeTable")
	}
	t := out.Table
	if made := aws.ToTime(t.CreationDateTime).UTC(); made.After(m.From) {
		m.From = made
	}
	if m.To.Sub(m.From) < time.Hour {
		return m, fmt.Errorf("table %s is too new: it has no full hour to measure yet", table)
	}
	m.Bytes, m.Parts = aws.ToInt64(t.TableSizeBytes), []cost.MeasuredPart{{}}
	if p := t.ProvisionedThroughput; p != nil {
		m.WriteCapacity, m.ReadCapacity = aws.ToInt64(p.WriteCapacityUnits), aws.ToInt64(p.ReadCapacityUnits)
	}
	for _, index := range t.GlobalSecondaryIndexes {
		m.Bytes += aws.ToInt64(index.IndexSizeBytes)
		m.Parts = append(m.Parts, cost.MeasuredPart{Index: aws.ToString(index.IndexName)})
		if p := index.ProvisionedThroughput; p != nil {
			m.WriteCapacity += aws.ToInt64(p.WriteCapacityUnits)
			m.ReadCapacity += aws.ToInt64(p.ReadCapacityUnits)
		}
	}
	err = read(ctx, metrics, &m)
	return m, explained(err, "cloudwatch:GetMetricData")
}

// read adds what each part consumed. The queries of the i-th part are w and r with its number.
func read(ctx context.Context, metrics Metrics, m *cost.Measured) error {
	in := &cloudwatch.GetMetricDataInput{StartTime: &m.From, EndTime: &m.To}
	to := make(map[string]*float64)
	for i := range m.Parts {
		p := &m.Parts[i]
		dimensions := []cwtypes.Dimension{{Name: aws.String("TableName"), Value: &m.Table}}
		if p.Index != "" { // without, what indexes consume is not counted
			dimensions = append(
				dimensions, cwtypes.Dimension{Name: aws.String("GlobalSecondaryIndexName"), Value: &p.Index},
			)
		}
		for metric, sum := range map[string]*float64{
			"ConsumedWriteCapacityUnits": &p.Write, "ConsumedReadCapacityUnits": &p.Read,
		} {
			id := "m" + strconv.Itoa(len(to))
			to[id] = sum
			in.MetricDataQueries = append(in.MetricDataQueries, cwtypes.MetricDataQuery{
				Id: &id,
				MetricStat: &cwtypes.MetricStat{
					Metric: &cwtypes.Metric{
						Namespace: aws.String("AWS/DynamoDB"), MetricName: &metric, Dimensions: dimensions,
					},
					Period: aws.Int32(3600), Stat: aws.String("Sum"),
				},
			})
		}
	}
	pages := cloudwatch.NewGetMetricDataPaginator(metrics, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, r := range page.MetricDataResults {
			switch r.StatusCode {
			case cwtypes.StatusCodeInternalError:
				return errors.New("CloudWatch GetMetricData: InternalError: repeat the command")
			case cwtypes.StatusCodeForbidden:
				return errors.New("CloudWatch GetMetricData: Forbidden: the caller needs cloudwatch:GetMetricData")
			case cwtypes.StatusCodeComplete, cwtypes.StatusCodePartialData: // more follows on the next page
			}
			for _, v := range r.Values {
				if sum := to[aws.ToString(r.Id)]; sum != nil {
					*sum += v
				}
			}
		}
	}
	return nil
}

// explained shortens an error from AWS, and names the permission that is missing.
func explained(err error, permission string) error {
	var api smithy.APIError
	var op *smithy.OperationError
	if !errors.As(err, &api) || !errors.As(err, &op) {
		return err
	}
	text := op.ServiceID + " " + op.OperationName + ": " + api.ErrorCode() + ": " + api.ErrorMessage()
	switch api.ErrorCode() {
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation":
		return fmt.Errorf("%s: the caller needs %s", text, permission)
	case "ResourceNotFoundException":
		return fmt.Errorf("%s: check the name and the region", text)
	}
	return errors.New(text)
}
