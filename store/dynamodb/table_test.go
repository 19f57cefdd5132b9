package dynamodb_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// hall is a client with the administrative calls, which may fail.
type hall struct {
	dynamodb.Admin

	ttl     func() error
	backups func() error
	backed  int
	made    []types.Tag
}

func (h *hall) CreateTable(ctx context.Context, in *sdk.CreateTableInput, _ ...func(*sdk.Options)) (*sdk.CreateTableOutput, error) {
	h.made = append(h.made, in.Tags...)
	return h.Admin.CreateTable(ctx, in)
}

func (h *hall) UpdateTimeToLive(ctx context.Context, in *sdk.UpdateTimeToLiveInput, _ ...func(*sdk.Options)) (*sdk.UpdateTimeToLiveOutput, error) {
	if h.ttl != nil {
		if err := h.ttl(); err != nil {
			return nil, err
		}
	}
	return h.Admin.UpdateTimeToLive(ctx, in)
}

func (h *hall) UpdateContinuousBackups(ctx context.Context, in *sdk.UpdateContinuousBackupsInput, _ ...func(*sdk.Options)) (*sdk.UpdateContinuousBackupsOutput, error) {
	h.backed++
	if h.backups == nil {
		return &sdk.UpdateContinuousBackupsOutput{}, nil
	}
	return nil, h.backups()
}

func admin(t testing.TB) (*sdk.Client, string) {
	t.Helper()
	return dynamotest.Client(t, dynamotest.Engine(t)), dynamotest.Table(t)
}

func finding(t testing.TB, r dynamodb.Report, name string) dynamodb.Finding {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(f dynamodb.Finding) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("nothing found about %s: %+v", name, r)
	}
	return r.Findings[i]
}

func TestCreate(t *testing.T) {
	t.Parallel()
	client, table := admin(t)
	h := &hall{Admin: client}
	cfg := dynamodb.CreateConfig{Tags: map[string]string{"team": "red", "app": "weir"}, PITR: true, DeletionProtection: true}
	for range 2 { // it may be repeated
		r, err := dynamodb.Create(t.Context(), h, table, cfg)
		if err != nil || !r.OK() {
			t.Fatalf("%+v, %v", r, err)
		}
		var names []string
		for _, f := range r.Findings {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, ", "); got != "table, clock, keys, index all, index parent, index scope, ttl, schema, backups" {
			t.Errorf("looked at %s", got)
		}
	}
	if h.backed != 2 {
		t.Errorf("backups asked for %d times", h.backed)
	}
	out, err := client.DescribeTable(t.Context(), &sdk.DescribeTableInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	if b := out.Table.BillingModeSummary; b == nil || b.BillingMode != types.BillingModePayPerRequest || !aws.ToBool(out.Table.DeletionProtectionEnabled) {
		t.Errorf("billing %+v, protected %t", b, aws.ToBool(out.Table.DeletionProtectionEnabled))
	}
	var tags []string
	for _, tag := range h.made {
		tags = append(tags, aws.ToString(tag.Key)+"="+aws.ToString(tag.Value))
	}
	if got := strings.Join(tags, " "); got != "app=weir team=red" {
		t.Errorf("tags %q", got)
	}
	if err := newCatalog(t, client, table).CheckVersion(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCreateCompletes checks that a creation that failed half-way leaves a table that no store opens until it is
// completed.
func TestCreateCompletes(t *testing.T) {
	t.Parallel()
	client, table := admin(t)
	h := &hall{Admin: client, ttl: func() error { return &types.LimitExceededException{Message: aws.String("not now")} }}
	if _, err := dynamodb.Create(t.Context(), h, table, dynamodb.CreateConfig{}); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Fatalf("error %v", err)
	}
	r, err := dynamodb.Check(t.Context(), client, table)
	if err != nil || r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, name := range []string{"ttl", "schema"} {
		if f := finding(t, r, name); f.OK || !strings.Contains(f.Remedy, "--create-table") {
			t.Errorf("half-created: %+v", f)
		}
	}
	var known *store.Error
	if err := newCatalog(t, client, table).CheckVersion(t.Context()); !errors.As(err, &known) || !strings.Contains(known.Hint, "--create-table") || !strings.Contains(err.Error(), table) {
		t.Errorf("error %v", err)
	}
	if r, err = dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
	if err := newCatalog(t, client, table).CheckVersion(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCreateBackups checks that unavailable backups are reported, and do not stop the rest.
func TestCreateBackups(t *testing.T) {
	t.Parallel()
	client, table := admin(t)
	early := &types.ContinuousBackupsUnavailableException{}
	h := &hall{Admin: client}
	h.backups = func() error {
		if h.backed < 2 {
			return early // a table this young
		}
		return errors.New("not offered")
	}
	r, err := dynamodb.Create(t.Context(), h, table, dynamodb.CreateConfig{PITR: true})
	if f := finding(t, r, "backups"); err != nil || f.OK || !strings.Contains(f.Detail, "not offered") || h.backed != 2 {
		t.Errorf("%+v after %d tries, %v", f, h.backed, err)
	}
	if err := newCatalog(t, client, table).CheckVersion(t.Context()); err != nil {
		t.Error(err)
	}
}

// ours is the input with which weir creates a table.
func ours(t testing.TB, table string) *sdk.CreateTableInput {
	t.Helper()
	attr := func(n string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &n, AttributeType: types.ScalarAttributeTypeS}
	}
	keys := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{{AttributeName: &hash, KeyType: types.KeyTypeHash}, {AttributeName: &sort, KeyType: types.KeyTypeRange}}
	}
	index := func(name, hash, sort string) types.GlobalSecondaryIndex {
		return types.GlobalSecondaryIndex{IndexName: &name, KeySchema: keys(hash, sort), Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}}
	}
	return &sdk.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest, KeySchema: keys("PK", "SK"),
		AttributeDefinitions: []types.AttributeDefinition{
			attr("PK"), attr("SK"), attr("GP"), attr("GS"), attr("PP"), attr("PC"), attr("RP"), attr("RO"),
		},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{index("all", "GP", "GS"), index("parent", "PP", "PC"), index("scope", "RP", "RO")},
	}
}

func without(in *sdk.CreateTableInput, attrs ...string) {
	in.AttributeDefinitions = slices.DeleteFunc(in.AttributeDefinitions, func(d types.AttributeDefinition) bool {
		return slices.Contains(attrs, aws.ToString(d.AttributeName))
	})
}

// TestForeignTables checks that a table that is not weir's is refused by name, with the reason, and left unchanged.
func TestForeignTables(t *testing.T) {
	t.Parallel()
	version := func(n types.AttributeValue) func(testing.TB, *sdk.Client, string) {
		return func(t testing.TB, c *sdk.Client, table string) {
			t.Helper()
			item(t, c, table, "_/SYSTEM#", "#VERSION", n)
		}
	}
	for _, tt := range []struct {
		name    string
		made    func(*sdk.CreateTableInput)
		then    func(testing.TB, *sdk.Client, string)
		finding string // reported by Check
		detail  string // reported by both
		remedy  string
	}{
		{"other keys", func(in *sdk.CreateTableInput) {
			in.KeySchema = in.KeySchema[:1]
			in.GlobalSecondaryIndexes = nil
			without(in, "SK", "GP", "GS", "PP", "PC", "RP", "RO")
		}, nil, "keys", "hash PK (S), not hash PK (S), range SK (S)", "another table"},
		{"numbers as keys", func(in *sdk.CreateTableInput) {
			in.AttributeDefinitions[1].AttributeType = types.ScalarAttributeTypeN
		}, nil, "keys", "range SK (N)", "another table"},
		{"an index missing", func(in *sdk.CreateTableInput) {
			in.GlobalSecondaryIndexes = in.GlobalSecondaryIndexes[:2]
			without(in, "RP", "RO")
		}, nil, "index scope", "is missing", "another table"},
		{"an index by other keys", func(in *sdk.CreateTableInput) {
			in.GlobalSecondaryIndexes[1].KeySchema = in.GlobalSecondaryIndexes[2].KeySchema
			without(in, "PP", "PC")
		}, nil, "index parent", "not hash PP (S)", "another table"},
		{"an index of everything", func(in *sdk.CreateTableInput) {
			in.GlobalSecondaryIndexes[0].Projection.ProjectionType = types.ProjectionTypeAll
		}, nil, "index all", "more than keys", "another table"},
		{"items, and no version", nil, func(t testing.TB, c *sdk.Client, table string) {
			t.Helper()
			item(t, c, table, "order#1", "line#1", number("7"))
		}, "schema", "no version: the table is not weir's", "create-table"},
		{"a later version", nil, version(number("2")), "schema", "version 2", "upgrade weir"},
		{"no version at all", nil, version(text("one")), "schema", "attribute n", "correct or delete it"},
		{"another ttl", nil, func(t testing.TB, c *sdk.Client, table string) {
			t.Helper()
			_, err := c.UpdateTimeToLive(t.Context(), &sdk.UpdateTimeToLiveInput{
				TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("dies"), Enabled: aws.Bool(true)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}, "ttl", "attribute dies", "another table"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client, table := admin(t)
			in := ours(t, table)
			if tt.made != nil {
				tt.made(in)
			}
			if _, err := client.CreateTable(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			if tt.then != nil {
				tt.then(t, client, table)
			}
			r, err := dynamodb.Check(t.Context(), client, table)
			if err != nil {
				t.Fatal(err)
			}
			if f := finding(t, r, tt.finding); f.OK || !strings.Contains(f.Detail, tt.detail) || !strings.Contains(f.Remedy, tt.remedy) {
				t.Errorf("found %+v", f)
			}
			before := count(t, client, table)
			_, err = dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{})
			var known *store.Error
			if !errors.As(err, &known) || !strings.Contains(err.Error(), table) || known.Hint == "" {
				t.Errorf("create: error %v", err)
			}
			if after := count(t, client, table); after != before {
				t.Errorf("%d items after a refused creation, %d before", after, before)
			}
			if err := newCatalog(t, client, table).CheckVersion(t.Context()); err == nil {
				t.Error("a store opens it")
			}
		})
	}
}

func item(t testing.TB, client *sdk.Client, table, pk, sk string, n types.AttributeValue) {
	t.Helper()
	_, err := client.PutItem(t.Context(), &sdk.PutItemInput{
		TableName: &table, Item: map[string]types.AttributeValue{"PK": text(pk), "SK": text(sk), "n": n},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func count(t testing.TB, client *sdk.Client, table string) int32 {
	t.Helper()
	out, err := client.Scan(t.Context(), &sdk.ScanInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	return out.Count
}

func TestNoTable(t *testing.T) {
	t.Parallel()
	client, table := admin(t)
	r, err := dynamodb.Check(t.Context(), client, table)
	if f := finding(t, r, "table"); err != nil || r.OK() || !strings.Contains(f.Remedy, "--create-table") {
		t.Errorf("%+v, %v", r, err)
	}
	err = newCatalog(t, client, table).CheckVersion(t.Context())
	if known, ok := errors.AsType[*store.Error](err); !ok || !strings.Contains(known.Hint, "--create-table") {
		t.Errorf("error %v", err)
	}
}

// dater changes the dates of answers.
type dater struct {
	sdk.HTTPClient
	by time.Duration
}

func (d dater) Do(r *http.Request) (*http.Response, error) {
	resp, err := d.HTTPClient.Do(r)
	if err == nil {
		resp.Header.Set("Date", time.Now().Add(d.by).UTC().Format(http.TimeFormat))
	}
	return resp, err
}

// TestCheckClock checks what is found about a machine's clock.
func TestCheckClock(t *testing.T) {
	t.Parallel()
	_, table := admin(t)
	for _, tt := range []struct {
		by     time.Duration
		ok     bool
		detail string
	}{
		{0, true, "agrees with DynamoDB's"},
		{time.Hour, false, "s behind DynamoDB's"},
		{-time.Minute, false, "s ahead of DynamoDB's"},
	} {
		client := dynamotest.Client(t, dynamotest.Engine(t), func(o *sdk.Options) { o.HTTPClient = dater{o.HTTPClient, tt.by} })
		if _, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
			t.Fatal(err)
		}
		r, err := dynamodb.Check(t.Context(), client, table)
		if err != nil {
			t.Fatal(err)
		}
		if f := finding(t, r, "clock"); f.OK != tt.ok || f.OK != (f.Remedy == "") || !strings.HasSuffix(f.Detail, tt.detail) {
			t.Errorf("%v: %+v", tt.by, f)
		}
	}
}
