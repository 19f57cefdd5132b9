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

// measure reads the last hour's figures, in one call.
func (d *Deployer) measure(ctx context.Context, s *Status) error {
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
	if len(all) == 0 {
		return nil
	}
	end := time.Now().Truncate(time.Minute)
	in := &cloudwatch.GetMetricDataInput{StartTime: aws.Time(end.Add(-time.Hour)), EndTime: &end}
	for i, f := range all {
		in.MetricDataQueries = append(in.MetricDataQueries, types.MetricDataQuery{
			Id: aws.String("m" + strconv.Itoa(i)),
			MetricStat: &types.MetricStat{
				Metric: &types.Metric{
					Namespace: &f.namespace, MetricName: &f.name,
					Dimensions: []types.Dimension{{Name: &f.dimension, Value: &f.value}},
				},
				Period: aws.Int32(3600), Stat: &f.stat,
			},
		})
	}
	pages := cloudwatch.NewGetMetricDataPaginator(d.cfg.Metrics, in)
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
			// An hour spans up to two periods, because it seldom begins on the hour.
			sum := 0.0
			for _, v := range r.Values {
				if all[i].stat == "Sum" {
					sum += v
				} else {
					sum = max(sum, v)
				}
			}
			all[i].to(sum)
		}
	}
	return nil
}
