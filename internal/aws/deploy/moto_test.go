package deploy_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"

	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/mototest"
	driver "github.com/weirlimits/weir/store/dynamodb"
)

// account is a stand-in for AWS that records the operations called.
type account struct {
	deploy.Config

	cfg aws.Config
	mu  sync.Mutex
	ops []string
}

func newAccount(t testing.TB) *account {
	t.Helper()
	a := &account{cfg: mototest.Config(t)}
	a.cfg.APIOptions = append(a.cfg.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("note", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			a.mu.Lock()
			a.ops = append(a.ops, middleware.GetServiceID(ctx)+" "+middleware.GetOperationName(ctx))
			a.mu.Unlock()
			return next.HandleInitialize(ctx, in)
		}), middleware.After)
	})
	a.Config = deploy.Config{
		Clients: deploy.Dial(a.cfg), Version: "v1.2.3", Poll: time.Millisecond,
		Zip: func(context.Context) ([]byte, string, error) { return zip, "abc", nil },
	}
	a.Objects = lax{a.Objects}
	return a
}

// zip is an empty ZIP file.
var zip = append([]byte("PK\x05\x06"), make([]byte, 18)...)

// lax omits the policy that refuses unencrypted requests: the stand-in ignores conditions, and would refuse every request.
type lax struct{ deploy.Objects }

func (lax) PutBucketPolicy(_ context.Context, in *s3.PutBucketPolicyInput, _ ...func(*s3.Options)) (*s3.PutBucketPolicyOutput, error) {
	if !strings.Contains(*in.Policy, `"aws:SecureTransport":"false"`) || !strings.Contains(*in.Policy, `"arn:aws:s3:::`+*in.Bucket+`/*"`) {
		return nil, errors.New("the policy is not about TLS")
	}
	return nil, nil
}

// written returns the recorded operations that write.
func (a *account) written() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, op := range a.ops {
		_, verb, _ := strings.Cut(op, " ")
		if !slices.ContainsFunc([]string{"Describe", "List", "Get", "Head", "Scan", "Query", "BatchGet"}, func(p string) bool { return strings.HasPrefix(verb, p) }) {
			out = append(out, op)
		}
	}
	return out
}

func name() string { return "s" + strings.ToLower(rand.Text()[:12]) }

// request is a deployment of a stack with parameters, as name and value in turn.
func request(name string, values ...string) deploy.Request {
	req := deploy.Request{Stack: name, Values: make(stack.Values)}
	for i := 0; i < len(values); i += 2 {
		req.Values[values[i]] = values[i+1]
	}
	return req
}

// bare is a deployment of a table without functions.
func bare(name string) deploy.Request {
	return request(name, "NoAggregator", "true", "NoProvisioner", "true")
}

func dry(req deploy.Request) deploy.Request {
	req.DryRun = true
	return req
}

// TestMistyped: commands that only read, and commands that need an existing stack, write nothing if there is no stack.
func TestMistyped(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	d, stack := deploy.New(a.Config), name()
	if _, err := d.Deploy(t.Context(), bare(stack)); err != nil {
		t.Fatal(err)
	}
	if len(a.written()) == 0 {
		t.Fatal("the deployment was not noted")
	}
	for what, look := range map[string]func(string) error{
		"status":  func(s string) error { _, err := d.Status(t.Context(), s); return err },
		"stack":   func(s string) error { _, err := d.Stack(t.Context(), s); return err },
		"doomed":  func(s string) error { _, err := d.Doomed(t.Context(), s); return err },
		"upgrade": func(s string) error { _, err := d.Upgrade(t.Context(), deploy.UpgradeRequest{Stack: s}); return err },
		"list": func(string) error {
			_, err := d.List(t.Context())
			return errors.Join(err, &deploy.NotFoundError{Near: []string{stack}})
		},
	} {
		a.ops = nil
		err := look(stack + "x")
		if none, ok := errors.AsType[*deploy.NotFoundError](err); !ok || !slices.Contains(none.Near, stack) {
			t.Errorf("%s: %v, want it not found, and %s named", what, err, stack)
		}
		if w := a.written(); len(w) > 0 || len(a.ops) == 0 {
			t.Errorf("%s writes: %v of %v", what, w, a.ops)
		}
	}
	a.ops = nil
	if s, err := d.Status(t.Context(), stack); err != nil || len(a.written()) > 0 || s.Table == nil || s.Schema.Version != driver.SchemaVersion || len(s.Drift) != 0 {
		t.Errorf("status %+v, %v, writes %v", s, err, a.written())
	}
}

// TestLife: a stack is created, deployed again unchanged, changed by flags, destroyed, adopted again, and destroyed
// permanently.
func TestLife(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	d, stack := deploy.New(a.Config), name()
	ctx := t.Context()

	res, err := d.Deploy(ctx, dry(request(stack)))
	if err != nil || !res.Created || !slices.ContainsFunc(res.Changes, func(c deploy.Change) bool { return c.Action == "add" && c.Type == "AWS::DynamoDB::Table" }) {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := d.Stack(ctx, stack); err == nil {
		t.Error("a dry run leaves a stack")
	}
	for _, op := range a.written() {
		if strings.HasPrefix(op, "S3") || strings.HasPrefix(op, "DynamoDB") {
			t.Errorf("a dry run calls %s", op)
		}
	}
	if _, err := d.Deploy(ctx, request(stack)); err != nil {
		t.Fatal(err)
	}
	tables := dynamodb.NewFromConfig(a.cfg)
	if s, err := driver.Open(ctx, driver.Config{Client: tables, Table: stack}); err != nil {
		t.Errorf("the table cannot be used: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}

	a.ops = nil
	if res, err = d.Deploy(ctx, request(stack)); err != nil || res.Created || len(res.Changes) != 0 {
		t.Errorf("the same again: %+v, %v", res, err)
	}
	if slices.Contains(a.ops, "S3 PutObject") || slices.Contains(a.ops, "CloudFormation ExecuteChangeSet") {
		t.Errorf("the same again: %v", a.written())
	}
	st, err := d.Stack(ctx, stack)
	if err != nil {
		t.Fatal(err)
	}
	if st.Values["PitrDays"] != "35" || st.Values["Stack"] != stack {
		t.Errorf("%+v", st.Values)
	}
	if res, err = d.Deploy(ctx, request(stack, "NoDashboard", "true")); err != nil || len(res.Changes) != 1 || res.Changes[0].Action != "remove" || res.Changes[0].Resource != "Dashboard" {
		t.Errorf("%+v, %v", res.Changes, err)
	}
	if st, err = d.Stack(ctx, stack); err != nil || st.Values["NoDashboard"] != "true" || st.Values["PitrDays"] != "35" {
		t.Errorf("%+v, %v", st.Values, err)
	}
	if _, err = d.Deploy(ctx, request(stack, "NoAggregator", "true", "KeepArchive", "false")); err == nil || !strings.Contains(err.Error(), "ArchiveBucket (AWS::S3::Bucket): would leave the stack") {
		t.Errorf("the archive is removed: %v", err)
	}

	doomed, err := d.Doomed(ctx, stack)
	if err != nil || loses(doomed) || len(doomed.Data) != 2 {
		t.Fatalf("%+v, %v", doomed, err)
	}
	archive := doomed.Data[slices.IndexFunc(doomed.Data, func(x deploy.Data) bool { return x.Resource == "ArchiveBucket" })].Name
	objects := s3.NewFromConfig(a.cfg, func(o *s3.Options) { o.UsePathStyle = true })
	for range 3 { // versions of a single object
		if _, err := a.Objects.PutObject(ctx, &s3.PutObjectInput{Bucket: &archive, Key: aws.String("audit/x"), Body: bytes.NewReader(zip)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Destroy(ctx, doomed, true); err != nil {
		t.Fatal(err)
	}
	if _, err := objects.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &archive}); err == nil {
		t.Error("the archive is still there")
	}
	if _, err := tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &stack}); err == nil {
		t.Error("the table is still there")
	}
}

// TestKept: a table outlives its stack unless requested otherwise, and does not prevent a new deployment; a foreign
// table does.
func TestKept(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	d, stack := deploy.New(a.Config), name()
	p := bare(stack)
	p.Values["DeletionProtection"] = "true"
	if _, err := d.Deploy(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	doomed, err := d.Doomed(t.Context(), stack)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Destroy(t.Context(), doomed, true)
	if err == nil || !strings.Contains(err.Error(), "is protected from deletion: weir aws deploy "+stack+" --deletion-protection=false") {
		t.Errorf("protected: %v", err)
	}
	if _, err := d.Stack(t.Context(), stack); err != nil {
		t.Errorf("what was refused was done: %v", err)
	}
	if err := d.Destroy(t.Context(), doomed, false); err != nil {
		t.Fatal(err)
	}
	sc, err := driver.ReadSchema(t.Context(), a.Tables, stack)
	if err != nil || sc.Version != driver.SchemaVersion {
		t.Errorf("the table has not been kept: %+v, %v", sc, err)
	}
	if res, err := d.Deploy(t.Context(), dry(p)); err != nil || !res.Created {
		t.Errorf("again: %+v, %v", res, err)
	}

	other := name()
	if _, err := a.Tables.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &other, BillingMode: "PAY_PER_REQUEST", KeySchema: tableKeys, AttributeDefinitions: tableAttributes,
	}); err != nil {
		t.Fatal(err)
	}
	p.Stack, a.ops = other, nil
	if _, err := d.Deploy(t.Context(), p); err == nil || !strings.Contains(err.Error(), "exists and is not weir's") || len(a.written()) > 0 {
		t.Errorf("another's table: %v, %v", err, a.written())
	}
}

// TestTableOnly: the plain table equals the table of the template.
func TestTableOnly(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	d, plain, stack := deploy.New(a.Config), name(), name()
	p := bare(plain)
	p.Values["DeletionProtection"] = "true"
	if r, err := d.Table(t.Context(), dry(p)); err != nil || r.OK() || len(a.written()) > 0 {
		t.Errorf("dry: %+v, %v, %v", r, err, a.written())
	}
	if r, err := d.Table(t.Context(), p); err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	p.Stack = stack
	if _, err := d.Deploy(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var got [2]string
	for i, table := range []string{plain, stack} {
		out, err := a.Tables.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
		if err != nil {
			t.Fatal(err)
		}
		got[i] = shape(out.Table)
	}
	if got[0] != got[1] {
		t.Errorf("plain:\n%s\nof the stack:\n%s", got[0], got[1])
	}
}

// TestForeignStack: a stack that weir did not create is neither changed nor deleted.
func TestForeignStack(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	d, stack := deploy.New(a.Config), name()
	cfn := cloudformation.NewFromConfig(a.cfg)
	_, err := cfn.CreateStack(t.Context(), &cloudformation.CreateStackInput{
		StackName: &stack, TemplateBody: aws.String(`{"Resources":{"Q":{"Type":"AWS::SQS::Queue"}}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	a.ops = nil
	p := request(stack)
	_, err1 := d.Deploy(t.Context(), p)
	_, err2 := d.Doomed(t.Context(), stack)
	_, err3 := d.Status(t.Context(), stack)
	for _, err := range []error{err1, err2, err3} {
		if err == nil || !strings.Contains(err.Error(), "was not deployed by weir") {
			t.Error(err)
		}
	}
	if w := a.written(); len(w) > 0 {
		t.Errorf("writes: %v", w)
	}
}
