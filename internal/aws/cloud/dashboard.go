package cloud

// dashboard adds a page that shows the state of the table and the functions.
func (p *Params) dashboard(s *stack) {
	if p.NoDashboard {
		return
	}
	table := func(metric string) list {
		return list{"AWS/DynamoDB", metric, "TableName", "${Table}", obj{"stat": "Sum"}}
	}
	var errors, durations, age, kept list
	for _, f := range []struct {
		id           string
		none, stream bool
	}{{"Aggregator", p.NoAggregator, true}, {"Provisioner", p.NoProvisioner, false}, {"Config", !p.ConfigFlow, true}} {
		if f.none {
			continue
		}
		of := func(metric, stat string) list {
			return list{"AWS/Lambda", metric, "FunctionName", "${" + f.id + "}", obj{"stat": stat}}
		}
		errors = append(errors, of("Invocations", "Sum"), of("Errors", "Sum"), of("Throttles", "Sum"))
		durations = append(durations, of("Duration", "p50"), of("Duration", "p99"))
		if f.stream {
			age = append(age, of("IteratorAge", "Maximum"))
			kept = append(kept, list{"AWS/Lambda", "OnFailureDestinationDeliveredEventCount", "EventSourceMappingUUID", "${" + f.id + "Source}", obj{"stat": "Sum", "label": f.id}})
		}
	}
	latency := func(op string) list {
		return list{"AWS/DynamoDB", "SuccessfulRequestLatency", "TableName", "${Table}", "Operation", op, obj{"stat": "p99"}}
	}
	throttles := list{table("ReadThrottleEvents"), table("WriteThrottleEvents")}
	for _, ix := range indexes {
		throttles = append(throttles, list{"AWS/DynamoDB", "WriteThrottleEvents", "TableName", "${Table}", "GlobalSecondaryIndexName", ix.name, obj{"stat": "Sum"}})
	}
	var widgets list
	for _, w := range []struct {
		title   string
		metrics list
	}{
		{"Units consumed", list{table("ConsumedWriteCapacityUnits"), table("ConsumedReadCapacityUnits")}},
		{"Throttled", throttles},
		{"DynamoDB latency, ms", list{latency("UpdateItem"), latency("BatchGetItem"), latency("Query")}},
		{"Failed conditions: refusals and wrong guesses", list{table("ConditionalCheckFailedRequests")}},
		{"Functions", errors},
		{"Functions, ms", durations},
		{"Stream lag, ms", age},
		{"Records given up on", kept},
	} {
		if len(w.metrics) == 0 {
			continue
		}
		n := len(widgets)
		widgets = append(widgets, obj{
			"type": "metric", "x": n % 2 * 12, "y": n / 2 * 6, "width": 12, "height": 6,
			"properties": obj{"title": w.title, "region": "${AWS::Region}", "period": minutes5, "view": "timeSeries", "metrics": w.metrics},
		})
	}
	s.add("Dashboard", "AWS::CloudWatch::Dashboard", obj{"DashboardName": p.Stack, "DashboardBody": sub(compact(obj{"widgets": widgets}))})
}
