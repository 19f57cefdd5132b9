package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/limits"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, file, got string) {
	t.Helper()
	file = "testdata/" + file
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%s: error %v; got\n%s", file, err, got)
	}
}

// attribute converts a value of DynamoDB's JSON.
func attribute(t *testing.T, value any) types.AttributeValue {
	t.Helper()
	for kind, v := range value.(map[string]any) { //nolint:forcetypeassert // a mistake in the file
		switch v := v.(type) {
		case string:
			if kind == "N" {
				return &types.AttributeValueMemberN{Value: v}
			}
			return &types.AttributeValueMemberS{Value: v}
		case bool:
			if kind == "NULL" {
				return &types.AttributeValueMemberNULL{Value: v}
			}
			return &types.AttributeValueMemberBOOL{Value: v}
		case map[string]any:
			m := make(map[string]types.AttributeValue)
			for name, v := range v {
				m[name] = attribute(t, v)
			}
			return &types.AttributeValueMemberM{Value: m}
		case []any:
			return &types.AttributeValueMemberL{} // which no test looks at
		}
	}
	t.Fatalf("the value %v", value)
	return nil
}

// table is a table with the items of a file of testdata, read in pages of a few.
type table []item

func openTable(t *testing.T, file string) (all table) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var members map[string]any
		if err := json.Unmarshal(line, &members); err != nil {
			t.Fatal(err)
		}
		it := make(item)
		for name, v := range members {
			it[name] = attribute(t, v)
		}
		all = append(all, it)
	}
	return all
}

// Scan returns three items of those that the filter of an import selects.
func (tb table) Scan(
	_ context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options),
) (*dynamodb.ScanOutput, error) {
	if *in.TableName != "ratelimits" {
		return nil, &types.ResourceNotFoundException{}
	}
	out := &dynamodb.ScanOutput{}
	for i, it := range tb {
		at, sort := it.text("PK")+" "+it.text("SK"), it.text("SK")
		if after := item(in.ExclusiveStartKey).text("at"); after != "" && at <= after {
			continue
		}
		if sort == "#META" || strings.HasPrefix(sort, "#CONFIG") || strings.HasPrefix(sort, "#NAMESPACE#") {
			out.Items = append(out.Items, it)
		}
		if len(out.Items) == 3 && i < len(tb)-1 {
			out.LastEvaluatedKey = item{"at": &types.AttributeValueMemberS{Value: at}}
			break
		}
	}
	return out, nil
}

// read imports a table, in a run with the namespace of the flag; "" for none.
func read(t *testing.T, tb table, namespace string) (out, errs string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	a := kit.New(nil, &o, &e, nil)
	cmd := kit.Func(a, kit.Spec{Use: "import", Short: "x"}, func(ctx context.Context, _ *struct{}) error {
		read, err := readZae(ctx, tb, "ratelimits")
		if err != nil {
			return err
		}
		all, err := read.imports(a)
		if err != nil {
			return err
		}
		return output(a, "", "the zae-limiter table ratelimits", "", all)
	})
	a.Prepare(cmd)
	cmd.SetArgs([]string{})
	if namespace != "" {
		cmd.SetArgs([]string{"--namespace", namespace})
	}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

// The table is one that zae-limiter 0.17.0 made itself, by testdata/zae-limiter/make.py.
func TestZae(t *testing.T) {
	t.Parallel()
	tb := openTable(t, "zae-limiter/0.17.0.jsonl")
	out, errs, err := read(t, tb, "")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "zae-limiter/0.17.0.yaml", out)
	golden(t, "zae-limiter/0.17.0.stderr", errs)

	one, _, err := read(t, tb, "search")
	if err != nil || !strings.Contains(one, "qps: {capacity: 10") || strings.Contains(one, "shop") {
		t.Errorf("one namespace: error %v\n%s", err, one)
	}
	if _, _, err := read(t, tb, "nothing"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("a namespace that is not there: %v", err)
	}
	if _, _, err := read(t, nil, ""); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("a table of another program: %v", err)
	}
	if _, err := readZae(t.Context(), tb, "other"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("no table: %v", err)
	}
}

// What a table may hold that zae-limiter did not write into the other.
func TestZaeOdd(t *testing.T) {
	t.Parallel()
	tb := table{
		made("_/SYSTEM#", "#NAMESPACE#a", "namespace_id", "ns"),
		made("ns/ENTITY#_", "#META", "name", "x"),
		made("ns/ENTITY#boss", "#META"),
		made("ns/ENTITY#child", "#META", "parent_id", "lead", "name", "child"),
		made("ns/ENTITY#lead", "#META", "parent_id", "boss"),
		made("ns/OTHER#x", "#CONFIG"),
		made("ns/RESOURCE#_total_", "#CONFIG"),
		made("ns/RESOURCE#r", "#CONFIG", "l_rpm_cp", "10", "l_new_cp", "1", "shape", "round"),
		made("ns/SYSTEM#", "#CONFIG", "on_unavailable", "block"),
	}
	yes := &types.AttributeValueMemberBOOL{Value: true}
	tb[3]["cascade"], tb[4]["cascade"] = yes, yes
	tb[2]["metadata"] = &types.AttributeValueMemberM{Value: item{"n": &types.AttributeValueMemberN{Value: "1"}}}
	out, _, err := read(t, tb, "")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "zae-limiter/odd.yaml", out)
}

func made(pk, sk string, texts ...string) item {
	it := item{"PK": &types.AttributeValueMemberS{Value: pk}, "SK": &types.AttributeValueMemberS{Value: sk}}
	for i := 0; i < len(texts); i += 2 {
		it[texts[i]] = &types.AttributeValueMemberS{Value: texts[i+1]}
	}
	return it
}

func TestZaeWindow(t *testing.T) {
	t.Parallel()
	for stored, want := range map[string]string{
		"1m0":                "hour@UTC",
		"1m0h0":              "day@Europe/Berlin",
		"1m0h0w1":            "week@Europe/Berlin",
		"1m0h0w7":            "week+sun@Europe/Berlin",
		"1m0h0w0":            "week+sun@Europe/Berlin",
		"1m0h0D1":            "month@Europe/Berlin",
		"1m0h0D28":           "month+28@Europe/Berlin",
		"1m0h0D1M1":          "year@Europe/Berlin",
		"1m0h0D1M1,4,7,10":   "quarter@Europe/Berlin",
		"1m0h0D29":           "",
		"1m0h0D1w1":          "",
		"1m0h0w1-5":          "",
		"1m0h0w8":            "",
		"1m0h0M6":            "",
		"1m0h0D2M1":          "",
		"1m30h0":             "",
		"1m0D1":              "",
		"1h0":                "",
		"1m0h0;m0h12":        "",
		"2m0h0":              "",
		"1m0h0D1M*/3;m0h0D1": "",
	} {
		w, err := zaeWindow(stored, "Europe/Berlin")
		if w.String() != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, error %v, want %q", stored, w, err, want)
		}
	}
	if _, err := zaeWindow("1m0h0", "Mars/Olympus"); err == nil {
		t.Error("an unknown zone")
	}
}

// Put writes the items of a table into an engine.
func (tb table) Put(t *testing.T, client *dynamodb.Client, name string) {
	t.Helper()
	key := []types.KeySchemaElement{
		{AttributeName: aws.String("PK"), KeyType: types.KeyTypeHash},
		{AttributeName: aws.String("SK"), KeyType: types.KeyTypeRange},
	}
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, KeySchema: key, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: key[0].AttributeName, AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: key[1].AttributeName, AttributeType: types.ScalarAttributeTypeS},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range tb {
		if _, ok := it["resources"]; ok {
			continue // a set, which attribute does not convert
		}
		if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &name, Item: it}); err != nil {
			t.Fatal(err)
		}
	}
}

// The command, on a table of an engine; the manifest can be applied, and then declares what is live.
func TestZaeCommand(t *testing.T) {
	t.Parallel()
	engine, name, dir := dynamotest.Engine(t), dynamotest.Table(t), t.TempDir()
	openTable(t, "zae-limiter/0.17.0.jsonl").Put(t, dynamotest.Client(t, engine), name)
	run := func(args ...string) (code int, out string) {
		var o, e bytes.Buffer
		a := kit.New(strings.NewReader(""), &o, &e, []string{"HOME=" + dir})
		root := &cobra.Command{Use: "weir"}
		a.Prepare(root)
		root.AddCommand(Cmd(a), limits.LimitsCmd(a))
		root.SetArgs(args)
		code = a.Execute(t.Context(), root)
		return code, o.String() + e.String()
	}
	file := filepath.Join(dir, "limits.yaml")
	code, out := run("import", "zae-limiter", name, "--endpoint", engine, "--out", file)
	text, err := os.ReadFile(file)
	if code != 0 || err != nil {
		t.Fatal(code, out, err)
	}
	golden(t, "zae-limiter/0.17.0.yaml", strings.ReplaceAll(string(text), name, "ratelimits"))
	store := "disk:" + filepath.Join(dir, "store")
	if code, out := run("limits", "apply", "--yes", "--store", store, "-f", file); code != 0 {
		t.Fatal(code, out)
	}
	if code, out := run("limits", "plan", "--detailed-exitcode", "--store", store, "-f", file); code != 0 {
		t.Fatal(code, out)
	}
	if code, out := run("import", "zae-limiter", "none", "--endpoint", engine); code != kit.NotFound {
		t.Errorf("no table: exit code %d, %s", code, out)
	}
	code, out = run("import", "zae-limiter", name, "--endpoint", engine, "-o", "json")
	if code != 0 || !strings.Contains(out, `"differs": [`) || !strings.Contains(out, `"manifest": "# Imported`) {
		t.Errorf("JSON: exit code %d, %s", code, out)
	}
}
