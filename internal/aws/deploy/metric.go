package deploy

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
)

// figure is one metric over an hour.
type figure struct {
	namespace, name, stat string
	dimension, value      string
	to                    func(float64)
}

// figures returns what is read about the table and the functions.
func (s *Status) figures() []figure {
	var all []figure
	if t := s.Table; t != nil {
		for name, to := range map[string]*float64{
			"ConsumedReadCapacityUnits": &t.Read, "ConsumedWriteCapacityUnits": &t.Write,
			"ReadThrottleEvents": &t.ReadsThrottled, "WriteThrottleEvents": &t.WritesThrottled,
		} {
			all = append(all, figure{"AWS/DynamoDB", name, "Sum", "TableName", t.Name, func(v float64) { *to = v }})
		}
	}
	for i := range s.Functions {
		f := &s.Functions[i]
		for name, to := range map[string]*float64{
			"Invocations": &f.Invocations, "Errors": &f.Errors, "Throttles": &f.Throttles,
		} {
			all = append(all, figure{"AWS/Lambda", name, "Sum", "FunctionName", f.Name, func(v float64) { *to = v }})
		}
		for name, to := range map[string]*time.Duration{"Duration": &f.LongestDuration, "IteratorAge": &f.Behind} {
			all = append(all, figure{"AWS/Lambda", name, "Maximum", "FunctionName", f.Name, func(v float64) {
				*to = time.Duration(v * float64(time.Millisecond))
			}})
		}
	}
	return all
}

// query is the query of a figure. Its ID is the figure's index.
func (f *figure) query(i int) types.MetricDataQuery {
	return types.MetricDataQuery{
		Id: aws.String("m" + strconv.Itoa(i)),
		MetricStat: &types.MetricStat{
			Metric: &types.Metric{
				Namespace: &f.namespace, MetricName: &f.name,
				Dimensions: []types.Dimension{{Name: &f.dimension, Value: &f.value}},
			},
			Period: aws.Int32(3600), Stat: &f.stat,
		},
	}
}

// total is the figure of the hour, which spans up to two periods because it seldom begins on the hour.
func (f *figure) total(periods []float64) (total float64) {
	for _, v := range periods {
		if f.stat == "Sum" {
			total += v
		} else {
			total = max(total, v)
		}
	}
	return total
}

// measure reads the last hour's figures, in one call.
func (s *Status) measure(ctx context.Context, metrics Metrics) error {
	all := s.figures()
	if len(all) == 0 {
		return nil
	}
	end := time.Now().Truncate(time.Minute)
	in := &cloudwatch.GetMetricDataInput{StartTime: aws.Time(end.Add(-time.Hour)), EndTime: &end}
	for i := range all {
		in.MetricDataQueries = append(in.MetricDataQueries, all[i].query(i))
	}
	pages := cloudwatch.NewGetMetricDataPaginator(metrics, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, r := range page.MetricDataResults {
			i, err := strconv.Atoi(aws.ToString(r.Id)[1:])
			if err != nil || i >= len(all) || len(r.Values) == 0 { // no data
				continue
			}
			all[i].to(all[i].total(r.Values))
		}
	}
	return nil
}
