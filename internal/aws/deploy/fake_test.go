package deploy_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// fake is CloudFormation with one stack that behaves as a test sets it up, for behavior that the stand-in cannot show.
type fake struct {
	deploy.Stacks // unfaked methods must not be called

	stack   *types.Stack
	changes []types.Change
	refused string // why a change set fails
	outcome []step // result of executing, one step per look
	looks   int
	events  []types.StackEvent // in order
	deleted []string
	created *cloudformation.CreateChangeSetInput
	stumble int  // number of looks that fail
	lost    bool // the answer to executing
}

// step is one event, and the stack's new status if the event is about the stack.
type step struct{ resource, typ, state, reason string }

func (f *fake) happen(s step) {
	id := strconv.Itoa(len(f.events))
	if s.typ == "" {
		s.typ, s.resource = "AWS::CloudFormation::Stack", *f.stack.StackName
		f.stack.StackStatus = types.StackStatus(s.state)
	}
	f.events = append(f.events, types.StackEvent{
		EventId: &id, LogicalResourceId: &s.resource, ResourceType: &s.typ, ResourceStatus: types.ResourceStatus(s.state),
		ResourceStatusReason: &s.reason, Timestamp: aws.Time(time.Unix(int64(len(f.events)), 0)),
	})
}

func none(stack string) error {
	return &smithy.GenericAPIError{Code: "ValidationError", Message: "Stack with id " + stack + " does not exist"}
}

func (f *fake) DescribeStacks(_ context.Context, in *cloudformation.DescribeStacksInput, _ ...func(*cloudformation.Options)) (*cloudformation.DescribeStacksOutput, error) {
	if f.stumble > 0 && f.looks > 0 {
		f.stumble--
		return nil, &smithy.GenericAPIError{Code: "Throttling", Message: "Rate exceeded"}
	}
	if f.looks > 0 && f.looks <= len(f.outcome) {
		f.happen(f.outcome[f.looks-1])
		f.looks++
	}
	if f.stack == nil || in.StackName != nil && *in.StackName != *f.stack.StackName && *in.StackName != *f.stack.StackId {
		return nil, none(aws.ToString(in.StackName))
	}
	s := *f.stack
	return &cloudformation.DescribeStacksOutput{Stacks: []types.Stack{s}}, nil
}

func (f *fake) DescribeStackEvents(context.Context, *cloudformation.DescribeStackEventsInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStackEventsOutput, error) {
	out := new(cloudformation.DescribeStackEventsOutput)
	for i := len(f.events) - 1; i >= 0; i-- {
		out.StackEvents = append(out.StackEvents, f.events[i])
	}
	return out, nil
}

func (f *fake) GetTemplate(
	context.Context, *cloudformation.GetTemplateInput, ...func(*cloudformation.Options),
) (*cloudformation.GetTemplateOutput, error) {
	return &cloudformation.GetTemplateOutput{TemplateBody: aws.String("Resources: {}")}, nil
}

func (f *fake) CreateChangeSet(_ context.Context, in *cloudformation.CreateChangeSetInput, _ ...func(*cloudformation.Options)) (*cloudformation.CreateChangeSetOutput, error) {
	f.created = in
	if in.ChangeSetType == types.ChangeSetTypeCreate && f.stack == nil {
		f.stack = ours(*in.StackName, "")
		f.happen(step{state: "REVIEW_IN_PROGRESS"})
	}
	return &cloudformation.CreateChangeSetOutput{Id: aws.String("change"), StackId: f.stack.StackId}, nil
}

func (f *fake) DescribeChangeSet(_ context.Context, in *cloudformation.DescribeChangeSetInput, _ ...func(*cloudformation.Options)) (*cloudformation.DescribeChangeSetOutput, error) {
	if f.refused != "" {
		return &cloudformation.DescribeChangeSetOutput{Status: types.ChangeSetStatusFailed, StatusReason: &f.refused}, nil
	}
	out := &cloudformation.DescribeChangeSetOutput{Status: types.ChangeSetStatusCreateComplete}
	if in.NextToken == nil && len(f.changes) > 1 { // in pages
		out.Changes, out.NextToken = f.changes[:1], aws.String("more")
	} else {
		out.Changes = f.changes[min(1, len(f.changes)-1):]
	}
	return out, nil
}

func (f *fake) ExecuteChangeSet(context.Context, *cloudformation.ExecuteChangeSetInput, ...func(*cloudformation.Options)) (*cloudformation.ExecuteChangeSetOutput, error) {
	f.looks = 1
	if f.lost {
		return nil, errors.New("connection reset")
	}
	return nil, nil
}

func (f *fake) DeleteChangeSet(_ context.Context, in *cloudformation.DeleteChangeSetInput, _ ...func(*cloudformation.Options)) (*cloudformation.DeleteChangeSetOutput, error) {
	f.deleted = append(f.deleted, *in.ChangeSetName)
	if f.looks > 0 { // it is executed
		return nil, &smithy.GenericAPIError{Code: "ChangeSetNotFound"}
	}
	return nil, nil
}

func (f *fake) DeleteStack(_ context.Context, in *cloudformation.DeleteStackInput, _ ...func(*cloudformation.Options)) (*cloudformation.DeleteStackOutput, error) {
	f.deleted = append(f.deleted, *in.StackName)
	if f.outcome != nil {
		f.looks = 1
	}
	return nil, nil
}

type who struct{}

func (who) GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error) {
	return &sts.GetCallerIdentityOutput{Account: aws.String("123456789012")}, nil
}

// tables is DynamoDB without any tables.
type tables struct{ *dynamotest.Fake }

func (tables) Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	return new(dynamodb.ScanOutput), nil
}

func (tables) DeleteTable(context.Context, *dynamodb.DeleteTableInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteTableOutput, error) {
	return nil, errors.New("there is none")
}

func ours(name, state string) *types.Stack {
	return &types.Stack{
		StackName: &name, StackId: aws.String("arn:" + name), StackStatus: types.StackStatus(state),
		Tags:       []types.Tag{{Key: aws.String(stack.TagStack), Value: &name}},
		Parameters: []types.Parameter{{ParameterKey: aws.String("Stack"), ParameterValue: &name}},
	}
}

func change(action types.ChangeAction, id, typ string, replacement types.Replacement, what ...string) types.Change {
	r := &types.ResourceChange{Action: action, LogicalResourceId: &id, ResourceType: &typ, Replacement: replacement}
	for _, w := range what {
		name, values, _ := strings.Cut(w, "=")
		was, is, _ := strings.Cut(values, ">")
		r.Details = append(r.Details, types.ResourceChangeDetail{Target: &types.ResourceTargetDefinition{
			Attribute: types.ResourceAttributeProperties, Name: &name, BeforeValue: &was, AfterValue: &is,
		}})
	}
	return types.Change{ResourceChange: r}
}

const (
	tableType  = "AWS::DynamoDB::Table"
	lambdaType = "AWS::Lambda::Function"
	roleType   = "AWS::IAM::Role"
)

// TestDeployOutcomes: CloudFormation's outcome is reported; for a failure, the first resource and the reason.
func TestDeployOutcomes(t *testing.T) {
	t.Parallel()
	add := []types.Change{change("Add", "Table", tableType, ""), change("Add", "Role", roleType, "")}
	failing := []step{
		{state: "CREATE_IN_PROGRESS"},
		{"Table", tableType, "CREATE_IN_PROGRESS", ""},
		{"Role", roleType, "CREATE_IN_PROGRESS", ""},
		{"Role", roleType, "CREATE_FAILED", `Resource handler returned message: "User: arn:aws:sts::1:x is not authorized to perform: iam:CreateRole (Service: Iam, Status Code: 403, Request ID: 1f)" (RequestToken: 2e, HandlerErrorCode: AccessDenied)`},
		{"Table", tableType, "CREATE_FAILED", "Resource creation cancelled"},
		{state: "DELETE_IN_PROGRESS", reason: "The following resource(s) failed to create: [Role, Table]."},
		{state: "DELETE_COMPLETE"},
	}
	updating := []step{
		{state: "UPDATE_IN_PROGRESS"},
		{"Fn", lambdaType, "UPDATE_IN_PROGRESS", ""},
		{"Fn", lambdaType, "UPDATE_FAILED", "out of\n memory"},
		{state: "UPDATE_ROLLBACK_IN_PROGRESS", reason: "x"},
		{"Fn", lambdaType, "UPDATE_COMPLETE", ""},
		{state: "UPDATE_ROLLBACK_COMPLETE"},
	}
	for _, tt := range []struct {
		name    string
		state   string // before; "": no stack
		changes []types.Change
		refused string
		events  []step // events before the deployment
		outcome []step
		stumble int
		dry     bool
		replace bool
		want    string // of the error
		told    string
		deleted string
		ran     bool
	}{
		{
			name: "create fails", changes: add, outcome: failing, ran: true,
			want: "deploy limits: Role (AWS::IAM::Role): User: arn:aws:sts::1:x is not authorized to perform: iam:CreateRole: what had been created is deleted again",
			told: "Table CREATE_IN_PROGRESS, Role CREATE_IN_PROGRESS, Role CREATE_FAILED, Table CREATE_FAILED",
		},
		{name: "looks fail", changes: add, outcome: failing, stumble: 4, ran: true, want: "iam:CreateRole: what had"},
		{name: "looks fail for good", changes: add, outcome: failing, stumble: 99, ran: true, want: "Rate exceeded; CloudFormation continues: weir aws status limits shows its progress"},
		{
			name: "update fails", state: "CREATE_COMPLETE", changes: []types.Change{change("Modify", "Fn", lambdaType, "False", "MemorySize=256>512")}, outcome: updating, ran: true,
			want: "deploy limits: Fn (AWS::Lambda::Function): out of memory: the stack is as it was before",
		},
		{name: "dry", changes: add, dry: true, deleted: "change, arn:limits"},
		{name: "dry, of a stack", state: "UPDATE_COMPLETE", changes: add, dry: true, deleted: "change"},
		{name: "dry, in somebody's review", state: "REVIEW_IN_PROGRESS", changes: add, dry: true, deleted: "change"},
		{name: "refused", changes: add, refused: "Template error: x", want: "deploy limits: the change was refused: Template error: x", deleted: "change, arn:limits"},
		{name: "nothing, dry", state: "CREATE_COMPLETE", refused: "The submitted information didn't contain changes. Submit different information to create a change set.", dry: true, deleted: "change"},
		{
			name: "replaces the table", state: "CREATE_COMPLETE", changes: []types.Change{change("Modify", "Table", tableType, "True", "TableName=a>b")}, deleted: "change",
			want: "deploy limits: Table (AWS::DynamoDB::Table): would be replaced by an empty one, because of TableName a to b: keep --code-bucket, --code-key as before, or add --replace",
		},
		{name: "may replace the table", state: "CREATE_COMPLETE", changes: []types.Change{change("Modify", "Table", tableType, "Conditional")}, want: "would perhaps be replaced", deleted: "change", dry: true},
		{name: "replaces it, as told", state: "CREATE_COMPLETE", changes: []types.Change{change("Modify", "Table", tableType, "True")}, dry: true, replace: true, deleted: "change"},
		{name: "removes the archive", state: "CREATE_COMPLETE", changes: []types.Change{change("Remove", "ArchiveBucket", "AWS::S3::Bucket", "")}, want: "would leave the stack", deleted: "change"},
		{
			name: "rolled back", state: "ROLLBACK_COMPLETE", events: failing[:5],
			want: "deploy limits: the stack is in ROLLBACK_COMPLETE: its creation failed, and CloudFormation can only delete such a stack; the first failure was Role: User: arn:aws:sts::1:x is not authorized to perform: iam:CreateRole: run weir aws destroy limits, then deploy again",
		},
		{name: "stuck", state: "UPDATE_ROLLBACK_FAILED", want: "continue-update-rollback --stack-name limits"},
		{name: "not all deleted", state: "DELETE_FAILED", want: "weir aws destroy limits again"},
		{name: "somebody else", state: "UPDATE_IN_PROGRESS", want: "somebody else is changing it: wait until weir aws status limits says that it is done"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &fake{changes: tt.changes, refused: tt.refused, outcome: tt.outcome, stumble: tt.stumble}
			if tt.state != "" {
				f.stack = ours("limits", tt.state)
			}
			for _, s := range tt.events {
				if s.typ != "" {
					f.happen(s)
				}
			}
			var told []string
			d := deploy.New(deploy.Config{
				Clients: deploy.Clients{Region: "eu-central-1", Stacks: f, Tables: tables{new(dynamotest.Fake)}, Identity: who{}},
				Version: "v1.0.0", Poll: time.Nanosecond,
				Tell: func(e deploy.Event) {
					if !e.Whole() {
						told = append(told, e.Resource+" "+e.State)
					}
				},
			})
			req := request("limits", "CodeBucket", "code", "CodeKey", "weir/mine.zip")
			req.DryRun, req.Replace = tt.dry, tt.replace
			_, err := d.Deploy(t.Context(), req)
			if tt.want == "" && err != nil || err != nil && tt.want == "" || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			if got := strings.Join(told, ", "); tt.told != "" && got != tt.told {
				t.Errorf("told %s", got)
			}
			if got := strings.Join(f.deleted, ", "); got != tt.deleted {
				t.Errorf("deleted %q, want %q", got, tt.deleted)
			}
			if ran := f.looks > 0; ran != tt.ran {
				t.Errorf("executed %t", ran)
			}
			if f.created != nil && (f.created.OnStackFailure == types.OnStackFailureDelete) != (f.created.ChangeSetType == types.ChangeSetTypeCreate) {
				t.Errorf("a failed creation is left as it is: %+v", f.created)
			}
		})
	}
}

// TestInterrupted: a caller that started a deployment may leave, and learns that it continues; a dry run is cleaned up
// even so.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{changes: []types.Change{change("Add", "Table", tableType, "")}, outcome: []step{{state: "CREATE_IN_PROGRESS"}}}
	cfg := deploy.Config{
		Clients: deploy.Clients{Region: "eu-central-1", Stacks: f, Tables: tables{new(dynamotest.Fake)}, Identity: who{}},
		Poll:    time.Millisecond, Tell: func(deploy.Event) { cancel() },
	}
	_, err := deploy.New(cfg).Deploy(ctx, bare("limits"))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "CloudFormation continues") || f.deleted != nil {
		t.Errorf("%v, deleted %v", err, f.deleted)
	}
	ctx, cancel = context.WithCancel(t.Context())
	f = &fake{changes: f.changes}
	cfg.Stacks, cfg.Planned = f, func([]deploy.Change) { cancel() }
	if _, err := deploy.New(cfg).Deploy(ctx, dry(bare("limits"))); err != nil || strings.Join(f.deleted, ", ") != "change, arn:limits" {
		t.Errorf("%v, deleted %v", err, f.deleted)
	}
}

// TestStackBegun: a stack that did not exist when the deployment began stays if it is being created when the deployment
// cleans up: by somebody else during a dry run, or by the deployment itself if the answer to executing was lost.
func TestStackBegun(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		f := &fake{
			changes: []types.Change{change("Add", "Table", tableType, "")}, outcome: []step{{state: "CREATE_IN_PROGRESS"}}, lost: lost,
		}
		cfg := deploy.Config{
			Clients: deploy.Clients{Region: "eu-central-1", Stacks: f, Tables: tables{new(dynamotest.Fake)}, Identity: who{}},
			Poll:    time.Nanosecond,
		}
		req, want := bare("limits"), "deploy limits: connection reset"
		if !lost {
			req, want = dry(req), ""
			cfg.Planned = func([]deploy.Change) { f.stack.StackStatus = types.StackStatusCreateInProgress }
		}
		_, err := deploy.New(cfg).Deploy(t.Context(), req)
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("lost %t: error %v", lost, err)
		}
		if got := strings.Join(f.deleted, ", "); got != "change" {
			t.Errorf("lost %t: deleted %q, want only the change", lost, got)
		}
	}
}

// A stack whose last function that writes to the archive leaves keeps the archive, unless it is to be given up.
func TestArchiveIsKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		values  []string
		replace bool
		want    string // of KeepArchive
	}{
		{"no function left", []string{"NoAggregator", "true"}, false, "true"},
		{"another function writes to it", []string{"NoAggregator", "true", "ConfigFlow", "true"}, false, ""},
		{"as told", []string{"NoAggregator", "true", "KeepArchive", "false"}, false, "false"},
		{"given up", []string{"NoAggregator", "true"}, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &fake{stack: ours("limits", "CREATE_COMPLETE"), changes: []types.Change{change("Modify", "Fn", lambdaType, "False")}}
			f.stack.Outputs = []types.Output{{OutputKey: aws.String("ArchiveBucket"), OutputValue: aws.String("archive")}}
			d := deploy.New(deploy.Config{
				Clients: deploy.Clients{Region: "eu-central-1", Stacks: f, Tables: tables{new(dynamotest.Fake)}, Identity: who{}},
				Version: "v1.0.0", Poll: time.Nanosecond,
			})
			req := request("limits", append([]string{"CodeBucket", "code", "CodeKey", "weir/mine.zip"}, tt.values...)...)
			req.DryRun, req.Replace = true, tt.replace
			if _, err := d.Deploy(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, p := range f.created.Parameters {
				if *p.ParameterKey == "KeepArchive" {
					got = aws.ToString(p.ParameterValue)
				}
			}
			if got != tt.want {
				t.Errorf("KeepArchive is %q, want %q", got, tt.want)
			}
		})
	}
}
