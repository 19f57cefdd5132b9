package deploy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/weirlimits/weir/internal/aws/deploy"
	driver "github.com/weirlimits/weir/store/dynamodb"
)

// functions is Lambda, where all functions are alike.
type functions struct{ last string }

func (functions) GetFunctionConfiguration(_ context.Context, in *lambda.GetFunctionConfigurationInput, _ ...func(*lambda.Options)) (*lambda.GetFunctionConfigurationOutput, error) {
	if *in.FunctionName == "gone" {
		return nil, errors.New("no such function")
	}
	return &lambda.GetFunctionConfigurationOutput{State: lambdatypes.StateActive, LastUpdateStatus: lambdatypes.LastUpdateStatusSuccessful}, nil
}

func (f functions) ListEventSourceMappings(context.Context, *lambda.ListEventSourceMappingsInput, ...func(*lambda.Options)) (*lambda.ListEventSourceMappingsOutput, error) {
	return &lambda.ListEventSourceMappingsOutput{EventSourceMappings: []lambdatypes.EventSourceMappingConfiguration{{State: aws.String("Enabled"), LastProcessingResult: &f.last}}}, nil
}

// figures is CloudWatch with metric values by name, one per page.
type figures map[string][]float64

func (f figures) GetMetricData(_ context.Context, in *cloudwatch.GetMetricDataInput, _ ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error) {
	page := len(aws.ToString(in.NextToken))
	q := in.MetricDataQueries[page]
	out := &cloudwatch.GetMetricDataOutput{MetricDataResults: []cwtypes.MetricDataResult{{Id: q.Id, Values: f[*q.MetricStat.Metric.MetricName]}}}
	if page+1 < len(in.MetricDataQueries) {
		out.NextToken = aws.String(strings.Repeat("x", page+1))
	}
	return out, nil
}

// TestStatus: figures are summed, and what needs attention is reported; a figure that cannot be read is not an error.
func TestStatus(t *testing.T) {
	t.Parallel()
	f, cfg := deployedAs(t, "v1.2.0")
	if _, err := driver.Create(t.Context(), cfg.Tables, "limits", driver.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	resource := func(id, name, typ string, status types.ResourceStatus) types.StackResource {
		return types.StackResource{LogicalResourceId: &id, PhysicalResourceId: &name, ResourceType: &typ, ResourceStatus: status}
	}
	f.all = []types.StackResource{
		resource("Table", "limits", tableType, "CREATE_COMPLETE"), resource("Aggregator", "limits-aggregator", lambdaType, "CREATE_COMPLETE"),
		resource("Old", "limits-old", lambdaType, "DELETE_COMPLETE"),
	}
	cfg.Functions, cfg.Metrics = functions{"OK"}, figures{"ConsumedWriteCapacityUnits": {40, 2}, "Invocations": {7}, "Errors": {0}, "IteratorAge": {1500, 900}, "Duration": {12.5}}
	s, err := deploy.New(cfg).Status(t.Context(), "limits")
	if err != nil || len(s.Problems) > 0 || len(s.Functions) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	fn := s.Functions[0]
	if s.Table.Write != 42 || s.Table.Read != -1 || fn.Invocations != 7 || fn.Throttles != -1 || fn.Behind != 1500*time.Millisecond || fn.LongestDuration != 12500*time.Microsecond || fn.Source != "Enabled" {
		t.Errorf("%+v, %+v", s.Table, fn)
	}

	f.all = append(f.all, resource("Gone", "gone", lambdaType, "CREATE_COMPLETE"))
	f.stack.StackStatus = "UPDATE_ROLLBACK_COMPLETE"
	cfg.Functions, cfg.Metrics = functions{"PROBLEM: Function call failed"}, figures{"WriteThrottleEvents": {3}, "Errors": {2}, "Invocations": {9}, "Throttles": {1}, "IteratorAge": {600_000}}
	if s, err = deploy.New(cfg).Status(t.Context(), "limits"); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(s.Problems, "\n")
	for _, want := range []string{
		"stack: the last change failed, and the stack is as it was before", "table limits: 0 reads and 3 writes were throttled",
		"limits-aggregator: 2 of 9 invocations failed", "limits-aggregator: 1 invocations were throttled", "limits-aggregator: was up to 10m0s behind",
		"limits-aggregator: reading its stream: PROBLEM: Function call failed", "function gone: no such function",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}
