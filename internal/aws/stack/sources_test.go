package stack_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/aws/function"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// TestSources: no record holds up a shard. A batch that fails is bisected, a record is tried four times and for as long as
// --record-age, and then kept in the archive, which has an alarm; so has a function that is behind or close to its timeout.
func TestSources(t *testing.T) {
	t.Parallel()
	r := resolved(t, stack.Weir, stack.Values{
		"ConfigFlow": "true", "Batch": "100", "BatchWindow": "7", "Parallel": "2", "RecordAge": "3600", "Timeout": "120",
		"DurationAlarm": "70", "AgeAlarm": "90", "Concurrency": "4", "ConfigConcurrency": "3",
	}).Resources
	of := func(id string) map[string]any {
		t.Helper()
		p, _ := r[id]["Properties"].(map[string]any)
		if p == nil {
			t.Fatalf("no %s", id)
		}
		return p
	}
	for name, reserved := range map[string]string{"Aggregator": "4", "Config": "3"} {
		want := map[string]any{
			"FunctionName": "ref:" + name, "EventSourceArn": "att:Table.StreamArn", "StartingPosition": "TRIM_HORIZON",
			"BatchSize": "100", "MaximumBatchingWindowInSeconds": "7", "ParallelizationFactor": "2",
			"BisectBatchOnFunctionError": "true", "FunctionResponseTypes": []any{"ReportBatchItemFailures"},
			"MaximumRetryAttempts": "3", "MaximumRecordAgeInSeconds": "3600",
			"DestinationConfig": map[string]any{"OnFailure": map[string]any{"Destination": "att:ArchiveBucket.Arn"}},
		}
		source := of(name + "Source")
		for key, value := range want {
			if diff := cmp.Diff(value, source[key]); diff != "" {
				t.Errorf("%s, %s: want -, got +:\n%s", name, key, diff)
			}
		}
		if got := of(name)["ReservedConcurrentExecutions"]; got != reserved {
			t.Errorf("%s: concurrency %v", name, got)
		}
		for suffix, want := range map[string]string{
			"Age": "IteratorAge > 90000", "Failures": "OnFailureDestinationDeliveredEventCount > 0",
			"Lost": "DestinationDeliveryFailures > 0", "Errors": "Errors > 0", "Throttles": "Throttles > 0",
		} {
			p := of(name + suffix)
			if got := p["MetricName"].(string) + " > " + p["Threshold"].(string); got != want {
				t.Errorf("%s%s: raised at %s, want %s", name, suffix, got, want)
			}
		}
		p := of(name + "Duration")
		if got := p["Metrics"].([]any)[0].(map[string]any)["Expression"]; got != "value / 120 / 10" || p["Threshold"] != "70" { // ms, to percent
			t.Errorf("%s: raised when %v is above %v", name, got, p["Threshold"])
		}
	}
}

// TestExport: what declares limits as a resource imports the function by the name under which the stack exports it.
func TestExport(t *testing.T) {
	t.Parallel()
	outputs := load(t, stack.Weir).Plain()["Outputs"].(map[string]any)
	name := outputs["ProvisionerArn"].(map[string]any)["Export"].(map[string]any)["Name"].(map[string]any)["Fn::Sub"].(string)
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "m", Text: []byte("namespace: x\nsystem: {limits: {rpm: 1/min}}\n")}}, strictyaml.Options{})
	must(t, err)
	imported := "Fn::Sub: " + strings.Replace(name, "${AWS::StackName}", "${WeirStack}", 1) + "\n"
	if text := string(function.Template(ms)); !strings.Contains(text, imported) {
		t.Errorf("the stack exports %s, which is not imported:\n%s", name, text)
	}
}

// TestScaling: provisioned capacity of the table and of each index is scaled to be used at 70 %.
func TestScaling(t *testing.T) {
	t.Parallel()
	n := 0
	for id, r := range resolved(t, stack.Weir, stack.Values{"Billing": "provisioned"}).Resources {
		if r["Type"] != "AWS::ApplicationAutoScaling::ScalingPolicy" {
			continue
		}
		n++
		p := r["Properties"].(map[string]any)["TargetTrackingScalingPolicyConfiguration"].(map[string]any)
		if p["TargetValue"] != "70" {
			t.Errorf("%s: %v", id, p)
		}
	}
	if n != 8 { // reads and writes of the table and three indexes
		t.Errorf("%d policies", n)
	}
}
