package table

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/cloudtest"
	"github.com/weirlimits/weir/store"
)

// items is one hash key of each kind of item, as the code makes it, by the function that makes it; for records, by kind.
func items() map[string]Key {
	b := store.Bucket{Namespace: "n", Entity: "e/BUCKET#", Resource: "r"}
	all := map[string]Key{
		"BucketKey": BucketKey(b, 1), "epochKey": epochKey("n"), "VersionKey": VersionKey(), "MarkerKey": MarkerKey("x"),
		"CreditKey":  CreditKey(&store.Credit{Bucket: b, Limit: "l", ID: "x"}),
		"AccountKey": AccountKey(b, "0"), "TallyKey": TallyKey("n", "p", 0), "MeteredKey": MeteredKey(), "streamKey": streamKey("s"),
		"UsagePartition": {UsagePartition("n", store.Hourly, store.OfBucket, 0), UsageSort(store.Hourly, time.Time{}, "e", "r")},
		"usage of all":   {UsagePartition(store.Registry, store.Hourly, store.OfStore, 0), UsageSort(store.Hourly, time.Time{}, "", "")},
		"IndexPartition": {PK: IndexPartition("n", "x")}, "partitionName": {PK: partitionName("n", 0)},
		"parentPartition": {PK: parentPartition("n", "p")}, "scopePartition": {PK: scopePartition("n", "r")},
	}
	for kind, ns := range map[store.Kind]string{
		store.KindNamespace: store.Registry, store.KindNamespaceID: store.Registry, store.KindSecret: store.Secrets, "other": "n",
		"member": "weir.instances", "cell": "cells",
	} {
		all[string(kind)] = RecordKey(store.Key{Namespace: ns, Kind: kind, ID: "x"})
	}
	for _, kind := range store.Kinds {
		all[string(kind)] = RecordKey(store.Key{Namespace: "n", Kind: kind, ID: "x", Sub: "y"})
	}
	all["audit of all"] = RecordKey(store.Key{Namespace: store.Registry, Kind: store.KindAudit, ID: "x", Sub: "y"})
	return all
}

// indexes are the indexes whose hash keys are made by functions.
var indexes = map[string]string{
	"IndexPartition": IndexAll, "partitionName": IndexAll, "parentPartition": IndexParent, "scopePartition": IndexScope,
}

// actions are the actions on items, by letter.
var actions = map[rune]string{
	'g': "GetItem", 'b': "BatchGetItem", 'q': "Query", 's': "Scan", 'p': "PutItem", 'u': "UpdateItem", 'd': "DeleteItem",
	'c': "ConditionCheckItem",
}

// allowed is what each role may do with each kind of item. Full may do everything but scan. In all other namespances, and
// without the tag, a tenant may do nothing.
var roles = []string{
	"AcquirePolicy", "ReadPolicy", "NamespaceAcquirePolicy", "NamespaceReadPolicy", "NamespaceFullPolicy", "AggregatorRole",
	"AggregatePolicy", "ProvisionerRole",
}

var allowed = map[string][8]string{
	//                  acquire, read, a tenant's: acquire, read, full; aggregator, weir aggregate, provisioner
	"BucketKey":       {"bpud", "gbq", "bpud", "bq", "bqpudc", "", "", "bq"},
	"entity":          {"b", "gbq", "b", "bq", "bqpudc", "b", "b", "bqpudc"},
	"entity-limits":   {"b", "gbq", "b", "bq", "bqpudc", "b", "b", "bqpudc"},
	"resource-limits": {"b", "gbq", "b", "bq", "bqpudc", "", "", "bqpudc"},
	"system":          {"b", "gbq", "b", "bq", "bqpudc", "", "", "bqpudc"},
	"plan-limits":     {"b", "gbq", "b", "bq", "bqpudc", "", "", "bqpudc"},
	"plan-entity":     {"b", "gbq", "b", "bq", "bqpudc", "", "", "bqpudc"},
	"epochKey":        {"b", "gbq", "b", "bq", "bqpudc", "", "", "bqpudc"},
	"audit-head":      {"b", "gbq", "b", "bq", "bqpudc", "", "", "bqpudc"},
	"other":           {"b", "gbq", "b", "bq", "bqpudc", "", "", "bqpudc"},
	"manifest":        {"", "gbq", "", "bq", "bqpudc", "", "", "bqpudc"},
	"revision":        {"", "gbq", "", "bq", "bqpudc", "", "", "bqpudc"},
	"revision-text":   {"", "gbq", "", "bq", "bqpudc", "", "", "bqpudc"},
	"audit":           {"", "gbq", "", "bq", "bqp", "", "", "bqp"}, // appended, never changed or deleted
	"CreditKey":       {"", "gbq", "", "bq", "bq", "", "", "bq"},   // a tenant credits nothing to itself
	"TallyKey":        {"pud", "gbq", "pud", "bq", "bqp", "", "", "bq"},
	"UsagePartition":  {"", "gbq", "", "bq", "bq", "bpu", "bpu", "bq"},
	"AccountKey":      {"", "gbq", "", "bq", "bq", "bpu", "bpu", "bq"},
	"IndexPartition":  {"", "q", "", "q", "q", "", "", "q"},
	"partitionName":   {"", "q", "", "q", "q", "", "", "q"},
	"parentPartition": {"", "q", "", "q", "q", "", "", "q"},
	"scopePartition":  {"", "q", "", "q", "q", "", "", "q"},

	// Of the whole store. The first four share one hash key, so that no policy can tell them apart.
	"VersionKey":   {"b", "gbq", "", "", "", "bpu", "bpu", "bqpudc"},
	"MeteredKey":   {"b", "gbq", "", "", "", "bpu", "bpu", "bqpudc"},
	"namespace":    {"b", "gbq", "", "", "", "bpu", "bpu", "bqpudc"},
	"namespace-id": {"b", "gbq", "", "", "", "bpu", "bpu", "bqpudc"},
	"audit of all": {"", "gbq", "", "", "", "", "", "bqp"},
	"usage of all": {"", "gbq", "", "", "", "bpu", "bpu", "bq"},
	"MarkerKey":    {"pud", "gbq", "", "", "", "", "", "bq"},
	"streamKey":    {"", "gbq", "", "", "", "", "qpu", "bq"},
	"secret":       {"b", "", "", "", "", "", "", ""}, // a server that decides signs leases
	"member":       {"b", "gbq", "", "", "", "", "", "bqpudc"},
	"cell":         {"b", "gbq", "", "", "", "", "", "bqpudc"},
}

// may returns the letters of the actions that a policy allows on an item.
func may(p cloudtest.Policy, who cloudtest.Principal, item string, k Key) string {
	var letters []rune
	for letter, action := range actions {
		c := cloudtest.Call{Action: "dynamodb:" + action, Index: indexes[item], Keys: []string{k.PK}}
		if c.Index != "" && action != "Query" {
			continue // there is no such call
		}
		if action == "Scan" {
			c.Keys = nil
		}
		if p.Allows(who, c) {
			letters = append(letters, letter)
		}
	}
	return sorted(string(letters))
}

func sorted(letters string) string {
	all := []rune(letters)
	slices.SortFunc(all, func(a, b rune) int { return strings.IndexRune("gbqspudc", a) - strings.IndexRune("gbqspudc", b) })
	return string(all)
}

// TestPolicies evaluates every policy with every kind of item and every action.
func TestPolicies(t *testing.T) {
	t.Parallel()
	tmpl, err := stack.Load(stack.Weir)
	if err != nil {
		t.Fatal(err)
	}
	for i, role := range append(slices.Clone(roles), "FullPolicy") {
		values := map[string]string{"CodeBucket": "code", "CodeKey": "a.zip"}
		if role == "AggregatePolicy" {
			values["NoAggregator"] = "true"
		}
		resolved, err := cloudtest.Resolve(tmpl.Plain(), values)
		if err != nil {
			t.Fatal(err)
		}
		p, err := cloudtest.PolicyOf(resolved, role)
		if err != nil {
			t.Fatal(err)
		}
		for item, k := range items() {
			row, ok := allowed[item]
			want := "gbqpudc"
			switch {
			case !ok:
				t.Fatalf("no row for %s: which roles may read and write it?", item)
			case i < len(roles):
				want = row[i]
			case indexes[item] != "":
				want = "q"
			}
			if got := may(p, cloudtest.Principal{"weir-namespace": "n"}, item, k); got != sorted(want) {
				t.Errorf("%s may %q with %s at %s, want %q", role, got, item, k, sorted(want))
			}
			if !strings.HasPrefix(role, "Namespace") {
				continue
			}
			for _, who := range []cloudtest.Principal{nil, {"weir-namespace": "other"}, {"weir-namespace": ""}} {
				if got := may(p, who, item, k); got != "" {
					t.Errorf("%s of %v may %q with %s at %s", role, who, got, item, k)
				}
			}
			for _, who := range []cloudtest.Principal{{"weir-namespace": "*"}, {"weir-namespace": store.Secrets}} {
				if got := may(p, who, item, k); got != "" && item == "secret" {
					t.Errorf("%s of %v may %q with %s at %s", role, who, got, item, k)
				}
			}
		}
	}
}

// TestItemsComplete: every function that makes a key of an item, and every kind of record, is among the items.
func TestItemsComplete(t *testing.T) {
	t.Parallel()
	all := items()
	makesRecords := []string{"RecordKey"} // by kind
	file, err := parser.ParseFile(token.NewFileSet(), "keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || fn.Type.Results == nil {
			continue
		}
		result, ok := fn.Type.Results.List[0].Type.(*ast.Ident)
		makes := ok && result.Name == "Key" || strings.Contains(strings.ToLower(fn.Name.Name), "partition")
		if _, listed := all[fn.Name.Name]; makes && !listed && !slices.Contains(makesRecords, fn.Name.Name) {
			t.Errorf("%s makes keys of items, and is not among the items", fn.Name.Name)
		}
	}
	kinds := slices.Concat(slices.Collect(maps.Keys(layouts)), slices.Collect(maps.Keys(systemWords)))
	for _, kind := range append(kinds, store.KindAudit) {
		if _, listed := all[string(kind)]; !listed {
			t.Errorf("kind %s is not among the items", kind)
		}
	}
	for item := range allowed {
		if _, ok := all[item]; !ok {
			t.Errorf("there is a row for %s, and no such item", item)
		}
	}
}
