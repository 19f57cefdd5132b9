package stack_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/cloudtest"
	"github.com/weirlimits/weir/internal/testkit/mototest"
)

// TestLint lints all templates in one run of cfn-lint, because it is slow to start. W1030 complains that a parameter may
// be empty where the conditions do not use it then.
func TestLint(t *testing.T) {
	t.Parallel()
	linter := mototest.Tool(t, "cfn-lint")
	dir := t.TempDir()
	files := []string{"-i", "W1030", "--"}
	for _, kind := range kinds {
		path := filepath.Join(dir, kind+".yaml")
		must(t, os.WriteFile(path, load(t, kind).CloudFormation(nil), 0o600))
		files = append(files, path)
	}
	if out, err := exec.CommandContext(t.Context(), linter, files...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// factor is a parameter, and the values to try besides the default: bounds, if it is a number.
type factor struct {
	name   string
	levels []stack.Values
}

// factors returns those of all parameters.
func factors(t *testing.T) (all []factor) {
	t.Helper()
	special := map[string][]stack.Values{
		"Stack":       {{"Stack": "abc"}, {"Stack": strings.Repeat("Long-", 9) + "long"}},
		"KmsKey":      {{"KmsKey": "arn:aws:kms:eu-central-1:" + account + ":key/0123abcd"}},
		"Batch":       {{"Batch": "1", "BatchWindow": "0"}, {"Batch": "10000", "BatchWindow": "300"}},
		"BatchWindow": {{"BatchWindow": "300"}},
		"AlarmTopic":  {{"AlarmTopic": "arn:aws:sns:eu-central-1:" + account + ":oncall"}},
		"Trust":       {{"Trust": role("gateway") + "," + role("worker")}},
		"NamePrefix":  {{"NamePrefix": "acme-"}}, "NameSuffix": {{"NameSuffix": "-p"}}, "NamespaceTag": {{"NamespaceTag": "tenant"}},
		"PermissionBoundary": {{"PermissionBoundary": "arn:aws:iam::" + account + ":policy/edge"}},
		"AggregatorRoleArn":  {{"AggregatorRoleArn": role("a")}}, "ProvisionerRoleArn": {{"ProvisionerRoleArn": role("p")}},
		"ConfigRoleArn": {{"ConfigRoleArn": role("c"), "ConfigFlow": "true"}},
		"ReadMin":       {{"ReadMin": "1"}, {"ReadMin": "1000"}}, "ReadMax": {{"ReadMax": "40000"}},
		"WriteMin": {{"WriteMin": "1"}, {"WriteMin": "1000"}}, "WriteMax": {{"WriteMax": "40000"}},
		"ArchiveDays": {{"ArchiveDays": "36500"}}, "CostExpression": {{"CostExpression": "w+r+f"}},
		"CodeBucket": {{"CodeBucket": "other"}}, "CodeKey": {{"CodeKey": "other.zip"}},
	}
	for _, p := range load(t, stack.Weir).Parameters {
		f := factor{p.Name, special[p.Name]}
		if f.levels == nil && len(p.Values) > 0 {
			for _, v := range []string{p.Values[0], p.Values[len(p.Values)-1]} {
				if v != p.Default {
					f.levels = append(f.levels, stack.Values{p.Name: v})
				}
			}
		} else if f.levels == nil {
			for _, v := range []float64{p.Least, p.Most} {
				if text := fmt.Sprintf("%.0f", v); text != p.Default {
					f.levels = append(f.levels, stack.Values{p.Name: text})
				}
			}
		}
		all = append(all, f)
	}
	return all
}

// tried returns the levels of a factor from which pairs are made. For a factor with two bounds these are the bounds: the
// default lies between them.
func (f *factor) tried() []int {
	if len(f.levels) == 2 {
		return []int{1, 2}
	}
	return []int{0, 1}
}

// row gives the level of each factor; 0 is the default.
type row []int

// design is all factors, and which pairs of their levels are yet to be covered.
type design struct {
	tmpl    *stack.Template
	factors []factor
	open    map[pair]bool
}

func (d *design) values(r row) stack.Values {
	values := maps.Clone(examples()[stack.Weir])
	for i, level := range r {
		if level > 0 {
			maps.Copy(values, d.factors[i].levels[level-1])
		}
	}
	if full := d.tmpl.Full(values); full["NoIam"] == "true" { // the user supplies the roles of the functions that exist
		for name, exists := range map[string]bool{
			"AggregatorRoleArn": full["NoAggregator"] != "true", "ProvisionerRoleArn": full["NoProvisioner"] != "true",
			"ConfigRoleArn": full["ConfigFlow"] == "true",
		} {
			if exists {
				values[name] = role("ours")
			}
		}
	}
	return values
}

func (d *design) check(r row) error { return d.tmpl.Check(d.tmpl.Full(d.values(r))) }

// pair is two factors, each at one level.
type pair struct{ a, la, b, lb int }

func (p pair) before(q pair) bool {
	return cmp.Or(cmp.Compare(p.a, q.a), cmp.Compare(p.b, q.b), cmp.Compare(p.la, q.la), cmp.Compare(p.lb, q.lb)) < 0
}

func (d *design) row(p pair) row {
	r := make(row, len(d.factors))
	r[p.a], r[p.b] = p.la, p.lb
	return r
}

// pairs opens all valid pairs. One that is refused must name one of its flags.
func (d *design) pairs(t *testing.T) (refused int) {
	t.Helper()
	for a := range d.factors {
		for b := a + 1; b < len(d.factors); b++ {
			for _, la := range d.factors[a].tried() {
				for _, lb := range d.factors[b].tried() {
					p := pair{a, la, b, lb}
					err := d.check(d.row(p))
					if d.open[p] = err == nil; err == nil {
						continue
					}
					delete(d.open, p)
					refused++
					one, other := d.tmpl.Parameters[a], d.tmpl.Parameters[b]
					if !strings.Contains(err.Error(), "--"+one.Flag()) && !strings.Contains(err.Error(), "--"+other.Flag()) {
						t.Errorf("%s %d and %s %d: refused with %q", one.Name, la, other.Name, lb, err)
					}
				}
			}
		}
	}
	return refused
}

// cover returns rows in which all open pairs occur. Each row starts with a pair that is still open, and then picks for
// each other factor the level that closes most pairs.
func (d *design) cover() (rows []row) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for len(d.open) > 0 {
		var first pair // the first in order, so that every run has the same rows
		for i, p := range slices.Collect(maps.Keys(d.open)) {
			if i == 0 || p.before(first) {
				first = p
			}
		}
		r := d.row(first)
		for _, i := range rnd.Perm(len(d.factors)) {
			if i != first.a && i != first.b {
				d.pick(r, i)
			}
		}
		for i := range r {
			for j := i + 1; j < len(r); j++ {
				delete(d.open, pair{i, r[i], j, r[j]})
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// pick sets a factor of a row to the level that closes most pairs.
func (d *design) pick(r row, i int) {
	best, most := 0, -1
	for _, level := range d.factors[i].tried() {
		r[i] = level
		n := 0
		for j := range r {
			if j != i && d.open[pair{min(i, j), r[min(i, j)], max(i, j), r[max(i, j)]}] {
				n++
			}
		}
		if n > most && d.check(r) == nil {
			best, most = level, n
		}
	}
	r[i] = best
}

// TestPairs resolves the template with every pair of parameters: whatever is referred to exists, every alarm notifies
// the topic if there is one, and no name depends on anything but the stack's.
func TestPairs(t *testing.T) {
	t.Parallel()
	d := &design{load(t, stack.Weir), factors(t), make(map[pair]bool)}
	refused := d.pairs(t)
	n := len(d.open)
	rows := d.cover()
	t.Logf("%d pairs in %d templates, %d pairs refused", n, len(rows), refused)
	doc := d.tmpl.Plain()
	for i, r := range rows {
		values := d.values(r)
		got, err := cloudtest.Resolve(doc, values)
		if err != nil {
			t.Errorf("row %d, %v: %v", i, values, err)
		}
		name := d.tmpl.Full(values)["Stack"]
		for id, one := range got.Resources {
			properties := one["Properties"].(map[string]any)
			if one["Type"] == "AWS::CloudWatch::Alarm" {
				if told, _ := properties["AlarmActions"].([]any); (len(told) == 1) != (values["AlarmTopic"] != "") {
					t.Errorf("row %d: %s tells %v", i, id, told)
				}
			}
			for _, key := range []string{"TableName", "FunctionName", "TopicName", "AlarmName", "RoleName", "ManagedPolicyName"} {
				text, ok := properties[key].(string)
				if ok && key != "FunctionName" && !strings.Contains(text, name) {
					t.Errorf("row %d: %s is called %s", i, id, text)
				}
			}
		}
		if got.Resources["Table"]["Properties"].(map[string]any)["TableName"] != name {
			t.Errorf("row %d: another table", i)
		}
	}
}
