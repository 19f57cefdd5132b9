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

// Stacks is what is called of CloudFormation.
type Stacks interface {
	// DescribeStacks finds a stack, or all.
	DescribeStacks(context.Context, *cloudformation.DescribeStacksInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStacksOutput, error)
	// DescribeStackResources lists what a stack consists of.
	DescribeStackResources(context.Context, *cloudformation.DescribeStackResourcesInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStackResourcesOutput, error)
	// DescribeStackEvents tells what happened to a stack, the last first.
	DescribeStackEvents(context.Context, *cloudformation.DescribeStackEventsInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStackEventsOutput, error)
	// GetTemplate returns a stack's template as it was deployed.
	GetTemplate(context.Context, *cloudformation.GetTemplateInput, ...func(*cloudformation.Options)) (*cloudformation.GetTemplateOutput, error)
	// CreateChangeSet has a change reckoned.
	CreateChangeSet(context.Context, *cloudformation.CreateChangeSetInput, ...func(*cloudformation.Options)) (*cloudformation.CreateChangeSetOutput, error)
	// DescribeChangeSet returns what would change.
	DescribeChangeSet(context.Context, *cloudformation.DescribeChangeSetInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeChangeSetOutput, error)
	// ExecuteChangeSet begins the change.
	ExecuteChangeSet(context.Context, *cloudformation.ExecuteChangeSetInput, ...func(*cloudformation.Options)) (*cloudformation.ExecuteChangeSetOutput, error)
	// DeleteChangeSet forgets one that was not executed.
	DeleteChangeSet(context.Context, *cloudformation.DeleteChangeSetInput, ...func(*cloudformation.Options)) (*cloudformation.DeleteChangeSetOutput, error)
	// DeleteStack begins to delete a stack.
	DeleteStack(context.Context, *cloudformation.DeleteStackInput, ...func(*cloudformation.Options)) (*cloudformation.DeleteStackOutput, error)
}

// Objects is what is called of S3.
type Objects interface {
	// HeadBucket tells whether a bucket is there, and ours.
	HeadBucket(context.Context, *s3.HeadBucketInput, ...func(*s3.Options)) (*s3.HeadBucketOutput, error)
	// CreateBucket makes the bucket of the code.
	CreateBucket(context.Context, *s3.CreateBucketInput, ...func(*s3.Options)) (*s3.CreateBucketOutput, error)
	// PutPublicAccessBlock keeps it to the account.
	PutPublicAccessBlock(context.Context, *s3.PutPublicAccessBlockInput, ...func(*s3.Options)) (*s3.PutPublicAccessBlockOutput, error)
	// PutBucketVersioning has it keep what is overwritten.
	PutBucketVersioning(context.Context, *s3.PutBucketVersioningInput, ...func(*s3.Options)) (*s3.PutBucketVersioningOutput, error)
	// PutBucketPolicy has it refuse what is not encrypted on its way.
	PutBucketPolicy(context.Context, *s3.PutBucketPolicyInput, ...func(*s3.Options)) (*s3.PutBucketPolicyOutput, error)
	// HeadObject tells whether an object is there.
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	// PutObject uploads one.
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	// ListObjectVersions lists what a bucket holds and held.
	ListObjectVersions(context.Context, *s3.ListObjectVersionsInput, ...func(*s3.Options)) (*s3.ListObjectVersionsOutput, error)
	// DeleteObjects deletes versions for good.
	DeleteObjects(context.Context, *s3.DeleteObjectsInput, ...func(*s3.Options)) (*s3.DeleteObjectsOutput, error)
	// DeleteBucket deletes an empty bucket.
	DeleteBucket(context.Context, *s3.DeleteBucketInput, ...func(*s3.Options)) (*s3.DeleteBucketOutput, error)
}

// Tables is what is called of DynamoDB.
type Tables interface {
	driver.Admin
	driver.Migrator
	// DeleteTable deletes a table and what is in it.
	DeleteTable(context.Context, *dynamodb.DeleteTableInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteTableOutput, error)
}

// Functions is what is called of Lambda.
type Functions interface {
	// GetFunctionConfiguration tells how a function is.
	GetFunctionConfiguration(context.Context, *lambda.GetFunctionConfigurationInput, ...func(*lambda.Options)) (*lambda.GetFunctionConfigurationOutput, error)
	// ListEventSourceMappings tells how it reads the stream.
	ListEventSourceMappings(context.Context, *lambda.ListEventSourceMappingsInput, ...func(*lambda.Options)) (*lambda.ListEventSourceMappingsOutput, error)
}

// Metrics is what is called of CloudWatch.
type Metrics interface {
	// GetMetricData returns metrics.
	GetMetricData(context.Context, *cloudwatch.GetMetricDataInput, ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error)
}

// Identity is what is called of STS.
type Identity interface {
	// GetCallerIdentity names the account.
	GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error)
}

// Clients are those of one region.
type Clients struct {
	Region    string
	Stacks    Stacks
	Objects   Objects
	Tables    Tables
	Functions Functions
	Metrics   Metrics
	Identity  Identity
}

// Dial returns clients from the SDK's configuration. It makes no call.
func Dial(cfg aws.Config) Clients {
	return Clients{
		Region: cfg.Region, Stacks: cloudformation.NewFromConfig(cfg), Functions: lambda.NewFromConfig(cfg),
		Objects: s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = cfg.BaseEndpoint != nil }),
		Metrics: cloudwatch.NewFromConfig(cfg), Identity: sts.NewFromConfig(cfg),
		Tables: dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
			// Engines for tests send checksums that are not those of their errors.
			o.DisableValidateResponseChecksum = cfg.BaseEndpoint != nil
		}),
	}
}
