package deploy

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	driver "github.com/weirlimits/weir/store/dynamodb"
)

// Stacks is the part of CloudFormation that this package calls.
type Stacks interface {
	// DescribeStacks finds one stack or lists all.
	DescribeStacks(
		context.Context, *cloudformation.DescribeStacksInput, ...func(*cloudformation.Options),
	) (*cloudformation.DescribeStacksOutput, error)
	// DescribeStackResources lists the resources of a stack.
	DescribeStackResources(
		context.Context, *cloudformation.DescribeStackResourcesInput, ...func(*cloudformation.Options),
	) (*cloudformation.DescribeStackResourcesOutput, error)
	// DescribeStackEvents lists the events of a stack, newest first.
	DescribeStackEvents(
		context.Context, *cloudformation.DescribeStackEventsInput, ...func(*cloudformation.Options),
	) (*cloudformation.DescribeStackEventsOutput, error)
	// GetTemplate returns a stack's template as deployed.
	GetTemplate(
		context.Context, *cloudformation.GetTemplateInput, ...func(*cloudformation.Options),
	) (*cloudformation.GetTemplateOutput, error)
	// CreateChangeSet starts computing a change.
	CreateChangeSet(
		context.Context, *cloudformation.CreateChangeSetInput, ...func(*cloudformation.Options),
	) (*cloudformation.CreateChangeSetOutput, error)
	// DescribeChangeSet returns what would change.
	DescribeChangeSet(
		context.Context, *cloudformation.DescribeChangeSetInput, ...func(*cloudformation.Options),
	) (*cloudformation.DescribeChangeSetOutput, error)
	// ExecuteChangeSet starts the change.
	ExecuteChangeSet(
		context.Context, *cloudformation.ExecuteChangeSetInput, ...func(*cloudformation.Options),
	) (*cloudformation.ExecuteChangeSetOutput, error)
	// DeleteChangeSet deletes a change set that was not executed.
	DeleteChangeSet(
		context.Context, *cloudformation.DeleteChangeSetInput, ...func(*cloudformation.Options),
	) (*cloudformation.DeleteChangeSetOutput, error)
	// DeleteStack starts deleting a stack.
	DeleteStack(
		context.Context, *cloudformation.DeleteStackInput, ...func(*cloudformation.Options),
	) (*cloudformation.DeleteStackOutput, error)
}

// Objects is the part of S3 that this package calls.
type Objects interface {
	// HeadBucket checks whether a bucket exists and is ours.
	HeadBucket(context.Context, *s3.HeadBucketInput, ...func(*s3.Options)) (*s3.HeadBucketOutput, error)
	// CreateBucket creates the bucket of the code.
	CreateBucket(context.Context, *s3.CreateBucketInput, ...func(*s3.Options)) (*s3.CreateBucketOutput, error)
	// PutPublicAccessBlock blocks public access to it.
	PutPublicAccessBlock(
		context.Context, *s3.PutPublicAccessBlockInput, ...func(*s3.Options),
	) (*s3.PutPublicAccessBlockOutput, error)
	// PutBucketVersioning makes it keep old versions.
	PutBucketVersioning(
		context.Context, *s3.PutBucketVersioningInput, ...func(*s3.Options),
	) (*s3.PutBucketVersioningOutput, error)
	// PutBucketPolicy makes it refuse unencrypted connections.
	PutBucketPolicy(context.Context, *s3.PutBucketPolicyInput, ...func(*s3.Options)) (*s3.PutBucketPolicyOutput, error)
	// HeadObject checks whether an object exists.
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	// PutObject uploads an object.
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	// ListObjectVersions lists the current and old objects of a bucket.
	ListObjectVersions(
		context.Context, *s3.ListObjectVersionsInput, ...func(*s3.Options),
	) (*s3.ListObjectVersionsOutput, error)
	// DeleteObjects deletes versions permanently.
	DeleteObjects(context.Context, *s3.DeleteObjectsInput, ...func(*s3.Options)) (*s3.DeleteObjectsOutput, error)
	// DeleteBucket deletes an empty bucket.
	DeleteBucket(context.Context, *s3.DeleteBucketInput, ...func(*s3.Options)) (*s3.DeleteBucketOutput, error)
}

// Tables is the part of DynamoDB that this package calls.
type Tables interface {
	driver.Admin
	driver.Migrator
	// DeleteTable deletes a table and its content.
	DeleteTable(
		context.Context, *dynamodb.DeleteTableInput, ...func(*dynamodb.Options),
	) (*dynamodb.DeleteTableOutput, error)
}

// Functions is the part of Lambda that this package calls.
type Functions interface {
	// GetFunctionConfiguration returns a function's state and configuration.
	GetFunctionConfiguration(
		context.Context, *lambda.GetFunctionConfigurationInput, ...func(*lambda.Options),
	) (*lambda.GetFunctionConfigurationOutput, error)
	// ListEventSourceMappings returns how a function reads the stream.
	ListEventSourceMappings(
		context.Context, *lambda.ListEventSourceMappingsInput, ...func(*lambda.Options),
	) (*lambda.ListEventSourceMappingsOutput, error)
}

// Metrics is the part of CloudWatch that this package calls.
type Metrics interface {
	// GetMetricData returns metrics.
	GetMetricData(
		context.Context, *cloudwatch.GetMetricDataInput, ...func(*cloudwatch.Options),
	) (*cloudwatch.GetMetricDataOutput, error)
}

// Identity is the part of STS that this package calls.
type Identity interface {
	// GetCallerIdentity returns the account.
	GetCallerIdentity(
		context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options),
	) (*sts.GetCallerIdentityOutput, error)
}

// Clients holds the clients for one region.
type Clients struct {
	Region    string
	Stacks    Stacks
	Objects   Objects
	Tables    Tables
	Functions Functions
	Metrics   Metrics
	Identity  Identity
}

// Dial returns clients for the SDK's configuration. It makes no call.
func Dial(cfg aws.Config) Clients {
	return Clients{
		Region: cfg.Region, Stacks: cloudformation.NewFromConfig(cfg), Functions: lambda.NewFromConfig(cfg),
		Objects: s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = cfg.BaseEndpoint != nil }),
		Metrics: cloudwatch.NewFromConfig(cfg), Identity: sts.NewFromConfig(cfg),
		Tables: dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
			// Test engines send wrong checksums with their errors.
			o.DisableValidateResponseChecksum = cfg.BaseEndpoint != nil
		}),
	}
}
