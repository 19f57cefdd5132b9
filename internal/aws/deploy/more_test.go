package deploy_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/porttest"
	driver "github.com/weirlimits/weir/store/dynamodb"
)

// templated is a fake whose stack has a template.
type templated struct {
	*fake

	body string
	all  []types.StackResource
}

func (f *templated) GetTemplate(context.Context, *cloudformation.GetTemplateInput, ...func(*cloudformation.Options)) (*cloudformation.GetTemplateOutput, error) {
	return &cloudformation.GetTemplateOutput{TemplateBody: &f.body}, nil
}

func (f *templated) DescribeStackResources(context.Context, *cloudformation.DescribeStackResourcesInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStackResourcesOutput, error) {
	return &cloudformation.DescribeStackResourcesOutput{StackResources: f.all}, nil
}

// deployedAs returns a stack as deployed by some version of weir.
func deployedAs(t *testing.T, version string) (*templated, deploy.Config) {
	t.Helper()
	f := &templated{fake: new(fake)}
	cfg := deploy.Config{
		Clients: deploy.Clients{Region: "eu-central-1", Stacks: f, Tables: tables{new(dynamotest.Fake)}, Identity: who{}},
		Version: version, Poll: time.Nanosecond, Zip: func(context.Context) ([]byte, string, error) { return zip, "abc", nil },
	}
	f.changes = []types.Change{change("Add", "Table", tableType, "")}
	if _, err := deploy.New(cfg).Deploy(t.Context(), dry(request("limits", "Memory", "512"))); err != nil {
		t.Fatal(err)
	}
	f.body, f.stack, f.deleted = *f.created.TemplateBody, ours("limits", "CREATE_COMPLETE"), nil
	f.stack.Tags, f.stack.Parameters = f.created.Tags, f.created.Parameters
	return f, cfg
}

// TestUpgrade: a stack keeps the parameters with which it was deployed, except those that belong to this weir. A stack of
// a later version is left alone, even if only its table is later.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	f, cfg := deployedAs(t, "v1.2.0")
	if _, err := driver.Create(t.Context(), cfg.Tables, "limits", driver.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	cfg.Version, cfg.Zip = "v1.10.0", func(context.Context) ([]byte, string, error) { return zip, "def", nil }
	up, err := deploy.New(cfg).Upgrade(t.Context(), deploy.UpgradeRequest{Stack: "limits", DryRun: true})
	if err != nil || up.From != "v1.2.0" || up.Migrated.To != driver.SchemaVersion {
		t.Fatalf("%+v, %v", up, err)
	}
	if parameter(f.created, "Memory") != "kept" || parameter(f.created, "CodeKey") != "weir-lambda/def.zip" {
		t.Errorf("parameters %+v", f.created.Parameters)
	}
	if !slices.ContainsFunc(f.created.Tags, func(t types.Tag) bool { return *t.Key == "weir:version" && *t.Value == "v1.10.0" }) {
		t.Errorf("tags %v", f.created.Tags)
	}
	f.created = nil
	cfg.Version = "v1.1.9"
	if _, err := deploy.New(cfg).Upgrade(t.Context(), deploy.UpgradeRequest{Stack: "limits"}); err == nil || !strings.Contains(err.Error(), "weir v1.2.0 deployed it, and this is v1.1.9: upgrade weir") || f.created != nil {
		t.Errorf("an older weir: %v", err)
	}
	cfg.Version = "v2.0.0"
	_, err = cfg.Tables.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: aws.String("limits"), Key: map[string]ddbtypes.AttributeValue{"PK": &ddbtypes.AttributeValueMemberS{Value: "_/SYSTEM#"}, "SK": &ddbtypes.AttributeValueMemberS{Value: "#VERSION"}},
		UpdateExpression: aws.String("SET #m = :m"), ExpressionAttributeNames: map[string]string{"#m": "min"},
		ExpressionAttributeValues: map[string]ddbtypes.AttributeValue{":m": &ddbtypes.AttributeValueMemberN{Value: "99"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deploy.New(cfg).Upgrade(t.Context(), deploy.UpgradeRequest{Stack: "limits"}); err == nil || !strings.Contains(err.Error(), "requires clients that know schema version 99") || f.created != nil {
		t.Errorf("a later table: %v", err)
	}
}

// TestCostAlarm: every change sends the expression of the cost alarm for the parameters as they will be.
func TestCostAlarm(t *testing.T) {
	t.Parallel()
	f, cfg := deployedAs(t, "v1.2.0")
	cfg.Cost = func(full stack.Values) string { return "w*" + full["Memory"] + "+" + full["MonthlyBudget"] }
	if _, err := deploy.New(cfg).Deploy(t.Context(), dry(request("limits", "MonthlyBudget", "50"))); err != nil {
		t.Fatal(err)
	}
	if got := parameter(f.created, "CostExpression"); got != "w*512+50" || parameter(f.created, "MonthlyBudget") != "50" {
		t.Errorf("%s of %+v", got, f.created.Parameters)
	}
	f.created = nil
	if _, err := deploy.New(cfg).Deploy(t.Context(), request("limits", "MonthlyBudget", "-1")); err == nil || !strings.Contains(err.Error(), "--monthly-budget -1: must be from 0 to") || f.created != nil {
		t.Errorf("a negative budget: %v", err)
	}
}

// TestDrift: differences are reported by value, with the properties in which they occur; order and whitespace do not matter.
func TestDrift(t *testing.T) {
	t.Parallel()
	f, cfg := deployedAs(t, "v1.2.0")
	cfg.Version = "v1.3.0"
	d := deploy.New(cfg)
	for _, tt := range []struct{ old, by, want string }{
		{"\n  ", "\n    ", ""},
		{
			"Timeout: !Ref Timeout", "Timeout: 60",
			"resource Aggregator differs in Timeout resource Config differs in Timeout resource Provisioner differs in Timeout",
		},
		{"  Dashboard: {Type", "  Board: {Type", "resource Board is gone resource Dashboard is new"},
		{"  TableName: {Value", "  TableNom: {Value", "output TableName is new output TableNom is gone"},
	} {
		st, err := d.Stack(t.Context(), "limits")
		if err != nil {
			t.Fatal(err)
		}
		st.Template = []byte(strings.ReplaceAll(f.body, tt.old, tt.by))
		if string(st.Template) == f.body {
			t.Fatalf("%s is not in the template", tt.old)
		}
		if got, err := st.Drift(); err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, %v", tt.by, got, err)
		}
	}
}

// TestDestroyFails: the error names the first resource and the reason; nothing is deleted after it.
func TestDestroyFails(t *testing.T) {
	t.Parallel()
	f, cfg := deployedAs(t, "v1.2.0")
	f.all = []types.StackResource{{LogicalResourceId: aws.String("Table"), PhysicalResourceId: aws.String("limits"), ResourceType: aws.String(tableType)}}
	f.outcome = []step{
		{state: "DELETE_IN_PROGRESS"},
		{"Role", roleType, "DELETE_FAILED", "Cannot delete entity, must detach all policies first."},
		{state: "DELETE_FAILED", reason: "The following resource(s) failed to delete: [Role]."},
	}
	d := deploy.New(cfg)
	doomed, err := d.Doomed(t.Context(), "limits")
	if err != nil || len(doomed.Data) != 1 || loses(doomed) {
		t.Fatalf("%+v, %v", doomed, err)
	}
	err = d.Destroy(t.Context(), doomed, true) // the fake DynamoDB refuses to delete
	want := "destroy limits: Role (AWS::IAM::Role): Cannot delete entity, must detach all policies first.: fix the cause, then run weir aws destroy limits again"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	f.stack.StackStatus, f.outcome, f.looks = "CREATE_COMPLETE", []step{{state: "DELETE_IN_PROGRESS"}, {state: "DELETE_COMPLETE"}}, 0
	if err = d.Destroy(t.Context(), doomed, true); err == nil || !strings.Contains(err.Error(), "the stack is gone, but these remain: table limits") {
		t.Errorf("%v", err)
	}
	f.stack.EnableTerminationProtection, f.deleted = aws.Bool(true), nil
	f.stack.StackStatus = "CREATE_COMPLETE"
	if doomed, err = d.Doomed(t.Context(), "limits"); err != nil {
		t.Fatal(err)
	}
	if err = d.Destroy(t.Context(), doomed, true); err == nil || !strings.Contains(err.Error(), "protected") || f.deleted != nil {
		t.Errorf("%v, deleted %v", err, f.deleted)
	}
}

// TestDestroyInterrupted: a caller that leaves while the stack is being deleted learns what is not deleted yet: once the
// stack is gone, weir does not find that any more.
func TestDestroyInterrupted(t *testing.T) {
	t.Parallel()
	f, cfg := deployedAs(t, "v1.2.0")
	f.all = []types.StackResource{{LogicalResourceId: aws.String("Table"), PhysicalResourceId: aws.String("limits"), ResourceType: aws.String(tableType)}}
	for deleteData, want := range map[bool]string{
		false: "shows its progress", true: "shows its progress; once the stack is gone, delete what it leaves: table limits",
	} {
		f.stack.StackStatus, f.outcome, f.looks = "CREATE_COMPLETE", []step{{state: "DELETE_IN_PROGRESS"}}, 0
		ctx, cancel := context.WithCancel(t.Context())
		cfg.Tell = func(deploy.Event) { cancel() }
		d := deploy.New(cfg)
		doomed, err := d.Doomed(ctx, "limits")
		if err != nil {
			t.Fatal(err)
		}
		err = d.Destroy(ctx, doomed, deleteData)
		if !errors.Is(err, context.Canceled) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want … %s", err, want)
		}
	}
}

// bucket is S3 with one bucket, which may belong to someone else.
type bucket struct {
	deploy.Objects

	theirs bool
	puts   []string
}

func (b *bucket) HeadBucket(
	_ context.Context, in *s3.HeadBucketInput, _ ...func(*s3.Options),
) (*s3.HeadBucketOutput, error) {
	if b.theirs && *in.ExpectedBucketOwner == "123456789012" {
		return nil, &smithy.GenericAPIError{Code: "Forbidden"}
	}
	return nil, nil
}

func (b *bucket) HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	return nil, &smithy.GenericAPIError{Code: "NotFound"}
}

func (b *bucket) PutObject(_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	b.puts = append(b.puts, *in.Key)
	return new(s3.PutObjectOutput), nil
}

// TestCode: the package goes to the named bucket, under its hash. A dry run uploads nothing, and a foreign bucket
// receives nothing.
func TestCode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ dry, theirs bool }{{false, false}, {true, false}, {false, true}} {
		b, f := &bucket{theirs: tt.theirs}, &fake{
			changes: []types.Change{change("Add", "Table", tableType, "")}, refused: "enough",
		}
		d := deploy.New(deploy.Config{
			Clients: deploy.Clients{
				Region: "cn-north-1", Stacks: f, Objects: b, Tables: tables{new(dynamotest.Fake)}, Identity: who{},
			},
			Poll: time.Nanosecond, Zip: func(context.Context) ([]byte, string, error) { return zip, "abc", nil },
		})
		req := request("limits", "CodeBucket", "code")
		req.DryRun = tt.dry
		_, err := d.Deploy(t.Context(), req)
		if tt.theirs {
			if err == nil || len(b.puts) > 0 || f.created != nil {
				t.Errorf("into another's bucket: %v, %v", b.puts, err)
			}
			continue
		}
		if got := parameter(f.created, "CodeKey") + " in " + parameter(f.created, "CodeBucket"); got != "weir-lambda/abc.zip in code" {
			t.Errorf("%s, %v", got, err)
		}
		if (len(b.puts) == 1) == tt.dry {
			t.Errorf("dry %t puts %v", tt.dry, b.puts)
		}
	}
}

// parameter returns the value that a change set gives a parameter, or "kept".
func parameter(in *cloudformation.CreateChangeSetInput, name string) string {
	for _, p := range in.Parameters {
		if *p.ParameterKey == name {
			if aws.ToBool(p.UsePreviousValue) {
				return "kept"
			}
			return *p.ParameterValue
		}
	}
	return ""
}

// TestOldStack: a stack that was deployed before templates had parameters keeps its settings as parameters.
func TestOldStack(t *testing.T) {
	t.Parallel()
	old, err := os.ReadFile("../stack/testdata/before-parameters.json")
	if err != nil {
		t.Fatal(err)
	}
	f := &templated{fake: new(fake), body: string(old)}
	f.stack = ours("weir", "CREATE_COMPLETE")
	f.stack.StackId = aws.String("arn:aws:cloudformation:eu-central-1:123456789012:stack/weir/1")
	f.stack.Parameters = []types.Parameter{{ParameterKey: aws.String("CodeBucket"), ParameterValue: aws.String("x")}}
	f.changes = []types.Change{change("Modify", "Fn", lambdaType, "False")}
	d := deploy.New(deploy.Config{
		Clients: deploy.Clients{Region: "eu-central-1", Stacks: f, Tables: tables{new(dynamotest.Fake)}, Identity: who{}},
		Version: "v2.0.0", Poll: time.Nanosecond, Zip: func(context.Context) ([]byte, string, error) { return zip, "abc", nil },
	})
	if _, err := d.Deploy(t.Context(), dry(request("weir", "Memory", "512"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Stack": "weir", "Billing": "provisioned", "Memory": "512", "ReadMax": "1000", "NamePrefix": "acme-", "CodeKey": "weir-lambda/abc.zip",
		"PermissionBoundary": "arn:aws:iam::123456789012:policy/edge",
	} {
		if got := parameter(f.created, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if !slices.ContainsFunc(f.created.Tags, func(t types.Tag) bool { return *t.Key == "team" && *t.Value == "gateway" }) {
		t.Errorf("tags %v", f.created.Tags)
	}
	st, err := d.Stack(t.Context(), "weir")
	if err != nil {
		t.Fatal(err)
	}
	if drift, err := st.Drift(); err != nil || len(drift) != 1 {
		t.Errorf("drift %v, %v", drift, err)
	}
}

// TestZipFails: a missing package stops the deployment before anything is done.
func TestZipFails(t *testing.T) {
	t.Parallel()
	f := new(fake)
	d := deploy.New(deploy.Config{
		Clients: deploy.Clients{Region: "eu-central-1", Stacks: f, Tables: tables{new(dynamotest.Fake)}, Identity: who{}},
		Zip:     func(context.Context) ([]byte, string, error) { return nil, "", errors.New("no go command") },
	})
	if _, err := d.Deploy(t.Context(), request("limits")); err == nil || err.Error() != "deploy limits: make the functions' package: no go command" || f.created != nil {
		t.Error(err)
	}
}

// If nothing answers, the error gives the cause instead of interpreting a status.
func TestNothingAnswers(t *testing.T) {
	t.Parallel()
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String("http://127.0.0.1:" + porttest.Free(t)), RetryMaxAttempts: 1, Credentials: aws.AnonymousCredentials{}}
	d := deploy.New(deploy.Config{Clients: deploy.Dial(cfg), Version: "v1.0.0"})
	if _, err := d.Doomed(t.Context(), "limits"); err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "status 0") {
		t.Errorf("error %v", err)
	}
}

// loses reports whether destroying the stack deletes data even without deleteData.
func loses(d deploy.Doomed) bool {
	return slices.ContainsFunc(d.Data, func(x deploy.Data) bool { return !x.Kept })
}
