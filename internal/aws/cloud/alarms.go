package cloud

import "strings"

// alarm is an alarm on one metric.
type alarm struct {
	id, name, why       string
	space, metric, stat string
	dimensions          list
	threshold, periods  int // raised above the threshold
}

const minutes5 = 300 // the period of every alarm, in seconds

func (a *alarm) add(s *stack, stackName, topic string) {
	properties := obj{
		"AlarmName": stackName + "-" + a.name, "AlarmDescription": a.why,
		"Namespace": a.space, "MetricName": a.metric, "Statistic": a.stat, "Dimensions": a.dimensions,
		"Period": minutes5, "EvaluationPeriods": a.periods, "Threshold": a.threshold,
		"ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": "notBreaching",
	}
	if topic != "" {
		properties["AlarmActions"], properties["OKActions"] = list{topic}, list{topic}
	}
	s.add(a.id, "AWS::CloudWatch::Alarm", properties)
}

func dimension(name string, value any) list { return list{obj{"Name": name, "Value": value}} }

func (p *Params) alarms(s *stack) {
	if p.NoAlarms {
		return
	}
	var all []alarm
	if !p.NoAggregator {
		all = append(all, p.functionAlarms("Aggregator", "aggregator", true)...)
	}
	if !p.NoProvisioner {
		all = append(all, p.functionAlarms("Provisioner", "provisioner", false)...)
	}
	if p.ConfigFlow {
		all = append(all, p.functionAlarms("Config", "config", true)...)
		all = append(all, alarm{
			id: "ConfigUndelivered", name: "config-undelivered", why: "A cell was not notified of a change, and learns of it at its next reconciliation",
			space: "AWS/SNS", metric: "NumberOfNotificationsFailed", stat: "Sum", dimensions: dimension("TopicName", att{"ConfigTopic", "TopicName"}), periods: 1,
		})
	}
	for _, a := range append(all, p.tableAlarms()...) {
		a.add(s, p.Stack, p.AlarmTopic)
	}
}

func (p *Params) functionAlarms(id, name string, stream bool) []alarm {
	of := dimension("FunctionName", ref(id))
	one := func(suffix, metric, stat, why string, threshold, periods int) alarm {
		return alarm{
			id: id + suffix, name: name + "-" + strings.ToLower(suffix), why: "The function " + name + " " + why,
			space: "AWS/Lambda", metric: metric, stat: stat, dimensions: of, threshold: threshold, periods: periods,
		}
	}
	all := []alarm{
		one("Errors", "Errors", "Sum", "fails", 0, 2),
		one("Duration", "Duration", "Maximum", "is close to its timeout", p.Timeout*10*p.DurationAlarm, 2),
		one("Throttles", "Throttles", "Sum", "is throttled: it needs more concurrency", 0, 2),
	}
	if !stream {
		return all
	}
	failed := one("Failures", "OnFailureDestinationDeliveredEventCount", "Sum", "gave up on records: they are in the archive bucket under "+failurePrefix, 0, 1)
	failed.dimensions = dimension("EventSourceMappingUUID", ref(id+"Source"))
	lost := one("Lost", "DestinationDeliveryFailures", "Sum", "gave up on records and could not keep them", 0, 1)
	return append(all, one("Age", "IteratorAge", "Maximum", "is behind the stream, which keeps records for a day", p.AgeAlarm*1000, 2), failed, lost)
}

func (p *Params) tableAlarms() []alarm {
	one := func(id, name, metric, why string, threshold, periods int) alarm {
		return alarm{
			id: id, name: name, why: why, space: "AWS/DynamoDB", metric: metric, stat: "Sum",
			dimensions: dimension("TableName", ref("Table")), threshold: threshold, periods: periods,
		}
	}
	all := []alarm{
		one("ReadThrottles", "read-throttles", "ReadThrottleEvents", "The table throttles reads", 0, 2),
		one("WriteThrottles", "write-throttles", "WriteThrottleEvents", "The table throttles writes: decisions are late, or follow on_unavailable", 0, 2),
	}
	for _, ix := range indexes {
		a := one("Index"+title(ix.name)+"Throttles", "index-"+ix.name+"-throttles", "WriteThrottleEvents", "The index throttles writes, and so does the table", 0, 2)
		a.dimensions = append(a.dimensions, obj{"Name": "GlobalSecondaryIndexName", "Value": ix.name})
		all = append(all, a)
	}
	if p.ReadAlarm > 0 {
		all = append(all, one("ReadCost", "read-cost", "ConsumedReadCapacityUnits", "Reads, which are billed, are higher than expected", p.ReadAlarm*minutes5, 3))
	}
	if p.WriteAlarm > 0 {
		all = append(all, one("WriteCost", "write-cost", "ConsumedWriteCapacityUnits", "Writes, which are billed, are higher than expected", p.WriteAlarm*minutes5, 3))
	}
	return all
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
