package stack_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/mototest"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestStack creates a stack from the template. weir completes and opens its table.
func TestStack(t *testing.T) {
	t.Parallel()
	cfg := mototest.Config(t)
	ctx := t.Context()
	objects := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	_, err := objects.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("weir-code-template")})
	must(t, err)
	_, err = objects.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("weir-code-template"), Key: aws.String("a.zip"), Body: bytes.NewReader([]byte("PK"))})
	must(t, err)
	const name = "weir-template"
	stacks := cloudformation.NewFromConfig(cfg)
	_, err = stacks.CreateStack(ctx, &cloudformation.CreateStackInput{
		StackName: aws.String(name), TemplateBody: aws.String(string(load(t, stack.Weir).CloudFormation(nil))),
		Capabilities: []cfntypes.Capability{cfntypes.CapabilityCapabilityNamedIam},
		Parameters: []cfntypes.Parameter{
			{ParameterKey: aws.String("Stack"), ParameterValue: aws.String(name)},
			{ParameterKey: aws.String("CodeBucket"), ParameterValue: aws.String("weir-code-template")},
			{ParameterKey: aws.String("CodeKey"), ParameterValue: aws.String("a.zip")},
		},
	})
	must(t, err)
	must(t, cloudformation.NewStackCreateCompleteWaiter(stacks, func(o *cloudformation.StackCreateCompleteWaiterOptions) {
		o.MinDelay, o.MaxDelay = 10*time.Millisecond, 100*time.Millisecond
	}).Wait(ctx, &cloudformation.DescribeStacksInput{StackName: aws.String(name)}, 30*time.Second))
	made, err := stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: aws.String(name)})
	must(t, err)
	out := map[string]string{}
	for _, o := range made.Stacks[0].Outputs {
		out[*o.OutputKey] = *o.OutputValue
	}
	for _, name := range []string{"TableName", "TableArn", "StreamArn", "AggregatorArn", "ProvisionerArn", "ArchiveBucket"} {
		if out[name] == "" {
			t.Errorf("no output %s among %v", name, out)
		}
	}
	db := awsdynamodb.NewFromConfig(cfg)
	report, err := dynamodb.Create(ctx, db, out["TableName"], dynamodb.CreateConfig{})
	must(t, err)
	if !report.OK() {
		t.Errorf("the table is not as weir makes it: %+v", report)
	}
}
