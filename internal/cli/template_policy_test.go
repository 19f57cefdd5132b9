package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/cli"
	"github.com/weirlimits/weir/internal/testkit/cloudtest"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/raced"
)

const limitsFile = `namespace: default
system:
  limits:
    rpm: {capacity: 60}
`

// reads are the commands that only read.
var reads = []string{
	"system get", "resource list", "resource get gpt", "entity list", "entity show key", "entity children org", "entity limits list key",
	"entity limits list --resource gpt", "entity limits get key --resource gpt", "namespace list --deleted", "namespace show blue", "namespace orphans",
	"bucket list", "bucket list --entity key", "bucket list --resource gpt", "bucket show key gpt", "available key gpt", "explain key gpt rpm=1",
	"audit list", "audit list --subject system", "limits export", "limits history", "limits plan -f FILE", "limits diff -f FILE", "doctor",
	"usage list --entity key", "usage summary", "usage top", "plan list", "plan show pro", "plan limits get pro --resource gpt",
	"group get big", "entity list --plan pro", "entity limits get org --total",
}

// TestPolicies: the policies of readers and of admins allow what the commands call, and nothing else.
func TestPolicies(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	engine := dynamotest.Engine(t)
	rec := cloudtest.Record(t, engine)
	table, file := dynamotest.Table(t), filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte(limitsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(endpoint string, commands ...string) []cloudtest.Call {
		t.Helper()
		for _, c := range commands {
			args := strings.Fields(strings.Replace(c, "FILE", file, 1))
			var out bytes.Buffer
			if code := cli.Main(t.Context(), append(args, "--store", "dynamodb://"+table+"?endpoint="+endpoint), strings.NewReader(""), &out, &out); code != 0 {
				t.Fatalf("weir %s: exit code %d: %s", c, code, &out)
			}
		}
		return rec.Calls()
	}
	run(engine, "doctor --create-table")
	configured := run(rec.URL,
		"plan set pro -l rpm:200/day", "plan limits set pro --resource gpt -l rpm:150/day", "group set big -l rpm:90/day@UTC",
		"system set -l rpm:100/day", "resource set gpt -l rpm:50/day --group big", "entity create org --plan pro",
		"entity create key --parent org --cascade", "entity limits set org --total -l rpm:5000/month@Europe/Berlin",
		"entity limits set key --resource gpt -l rpm:20/day", "acquire key gpt rpm=2", "namespace create blue", "--namespace blue system set -l rpm:1/h",
		"--namespace blue acquire a b rpm=1", "limits apply -f FILE --adopt --yes",
	)
	_, err := dynamotest.Client(t, engine).PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: map[string]types.AttributeValue{
		"PK": &types.AttributeValueMemberS{Value: "_/SYSTEM#"}, "SK": &types.AttributeValueMemberS{Value: "#METERED"},
		"n": &types.AttributeValueMemberN{Value: "1"},
	}}) // as weir aggregate does, so that usage can be listed
	if err != nil {
		t.Fatal(err)
	}
	looked := run(rec.URL, reads...)
	configured = append(configured, run(rec.URL,
		"entity update key --parent=", "limits rollback 1 --yes", "bucket reset key gpt --yes", "entity limits delete key --resource gpt --yes",
		"resource delete gpt --yes", "group delete big --yes", "entity update org --plan=", "plan limits delete pro --resource gpt --yes",
		"plan delete pro --yes", "entity limits delete org --total --yes", "entity delete org --children --yes", "entity delete key --yes", "namespace delete blue --yes",
		"namespace recover blue", "namespace delete blue --yes", "namespace purge blue --yes",
	)...)
	tmpl, err := stack.Load(stack.Weir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cloudtest.Resolve(tmpl.Plain(), map[string]string{"CodeBucket": "code", "CodeKey": "a.zip"})
	if err != nil {
		t.Fatal(err)
	}
	covers(t, text, "ReadPolicy", looked)
	covers(t, text, "FullPolicy", slices.Concat(looked, configured))
}

func covers(t *testing.T, template cloudtest.Resolved, id string, calls []cloudtest.Call) {
	t.Helper()
	p, err := cloudtest.PolicyOf(template, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if !p.Allows(nil, c) {
			t.Errorf("%s lacks %+v", id, c)
		}
	}
	for _, what := range p.Idle(nil, calls) {
		t.Errorf("%s allows %s, which nothing calls", id, what)
	}
	if id != "ReadPolicy" {
		return
	}
	for _, grant := range p.Grants() { // whatever else may be wrong
		for _, word := range []string{"Put", "Update", "Delete", "Create", "*"} {
			if strings.Contains(grant, word) {
				t.Errorf("%s allows %s", id, grant)
			}
		}
	}
}
