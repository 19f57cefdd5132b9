package cloud_test

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

	"github.com/weirlimits/weir/internal/aws/cloud"
	"github.com/weirlimits/weir/internal/testkit/mototest"
)

// factor is a parameter and the values to try besides the default.
type factor struct {
	name   string
	levels []func(*cloud.Params)
}

func levels[T any](name string, field func(*cloud.Params) *T, values ...T) factor {
	f := factor{name: name}
	for _, v := range values {
		f.levels = append(f.levels, func(p *cloud.Params) { *field(p) = v })
	}
	return f
}

func role(name string) string { return "arn:aws:iam::" + account + ":role/" + name }

// factors are all parameters; numeric ones are tried at their bounds.
var factors = []factor{
	levels("stack", func(p *cloud.Params) *string { return &p.Stack }, "abc", strings.Repeat("Long-", 10)),
	levels("tag", func(p *cloud.Params) *map[string]string { return &p.Tags }, map[string]string{"team": "gateway", "cost center": "42"}),
	levels("billing", func(p *cloud.Params) *string { return &p.Billing }, cloud.Provisioned),
	levels("read-min", func(p *cloud.Params) *int { return &p.ReadMin }, 1, 1000),
	levels("read-max", func(p *cloud.Params) *int { return &p.ReadMax }, 40_000),
	levels("write-min", func(p *cloud.Params) *int { return &p.WriteMin }, 1, 1000),
	levels("write-max", func(p *cloud.Params) *int { return &p.WriteMax }, 40_000),
	levels("pitr-days", func(p *cloud.Params) *int { return &p.PITRDays }, 0, 1),
	levels("deletion-protection", func(p *cloud.Params) *bool { return &p.DeletionProtection }, true),
	levels("kms-key", func(p *cloud.Params) *string { return &p.KMSKey }, "arn:aws:kms:eu-central-1:"+account+":key/0123abcd"),
	levels("no-retain", func(p *cloud.Params) *bool { return &p.NoRetain }, true),
	levels("no-aggregator", func(p *cloud.Params) *bool { return &p.NoAggregator }, true),
	levels("no-provisioner", func(p *cloud.Params) *bool { return &p.NoProvisioner }, true),
	levels("config-flow", func(p *cloud.Params) *bool { return &p.ConfigFlow }, true),
	{"code-bucket", []func(*cloud.Params){func(p *cloud.Params) { p.CodeBucket, p.CodeKey = "code", "weir/abc.zip" }}},
	levels("memory", func(p *cloud.Params) *int { return &p.Memory }, 128, 3008),
	levels("timeout", func(p *cloud.Params) *int { return &p.Timeout }, 1, 900),
	levels("concurrency", func(p *cloud.Params) *int { return &p.Concurrency }, 1, 1000),
	levels("config-concurrency", func(p *cloud.Params) *int { return &p.ConfigConcurrency }, 1, 1000),
	levels("tracing", func(p *cloud.Params) *bool { return &p.Tracing }, true),
	levels("log-days", func(p *cloud.Params) *int { return &p.LogDays }, 1, 3653),
	{"batch", []func(*cloud.Params){
		func(p *cloud.Params) { p.Batch, p.BatchWindow = 1, 0 }, func(p *cloud.Params) { p.Batch, p.BatchWindow = 10_000, 300 },
	}},
	levels("parallel", func(p *cloud.Params) *int { return &p.Parallel }, 10),
	levels("record-age", func(p *cloud.Params) *int { return &p.RecordAge }, 60, 86_400),
	levels("usage-hourly-days", func(p *cloud.Params) *int { return &p.UsageHourly }, 0, 1),
	levels("usage-daily-days", func(p *cloud.Params) *int { return &p.UsageDaily }, 0, 1),
	levels("usage-monthly-days", func(p *cloud.Params) *int { return &p.UsageMonthly }, 1),
	levels("audit-days", func(p *cloud.Params) *int { return &p.AuditDays }, 1, 36_500),
	levels("no-archive", func(p *cloud.Params) *bool { return &p.NoArchive }, true),
	levels("archive-cold-days", func(p *cloud.Params) *int { return &p.ArchiveColdDays }, 0, 3650),
	levels("archive-days", func(p *cloud.Params) *int { return &p.ArchiveDays }, 36_500),
	levels("no-alarms", func(p *cloud.Params) *bool { return &p.NoAlarms }, true),
	levels("no-dashboard", func(p *cloud.Params) *bool { return &p.NoDashboard }, true),
	levels("alarm-topic", func(p *cloud.Params) *string { return &p.AlarmTopic }, "arn:aws:sns:eu-central-1:"+account+":oncall"),
	levels("duration-alarm", func(p *cloud.Params) *int { return &p.DurationAlarm }, 1, 100),
	levels("age-alarm", func(p *cloud.Params) *int { return &p.AgeAlarm }, 1, 86_400),
	levels("read-alarm", func(p *cloud.Params) *int { return &p.ReadAlarm }, 0),
	levels("write-alarm", func(p *cloud.Params) *int { return &p.WriteAlarm }, 0),
	levels("no-iam", func(p *cloud.Params) *bool { return &p.NoIAM }, true),
	levels("no-policies", func(p *cloud.Params) *bool { return &p.NoPolicies }, true),
	{"roles", []func(*cloud.Params){func(p *cloud.Params) { p.Roles, p.Trust = true, []string{role("gateway"), role("worker")} }}},
	levels("namespace-tag", func(p *cloud.Params) *string { return &p.NamespaceTag }, "tenant"),
	levels("permission-boundary", func(p *cloud.Params) *string { return &p.PermissionBoundary }, "edge", "arn:aws:iam::"+account+":policy/edge"),
	levels("role-name-format", func(p *cloud.Params) *string { return &p.RoleNameFormat }, "acme-{}"),
	levels("policy-name-format", func(p *cloud.Params) *string { return &p.PolicyNameFormat }, "acme-{}-policy"),
	levels("aggregator-role", func(p *cloud.Params) *string { return &p.AggregatorRole }, role("aggr")),
	levels("provisioner-role", func(p *cloud.Params) *string { return &p.ProvisionerRole }, role("prov")),
	{"config-role", []func(*cloud.Params){func(p *cloud.Params) { p.ConfigFlow, p.ConfigRole = true, role("config") }}},
}

// tried returns the levels of a factor from which pairs are made. For a factor with two bounds these are the bounds: the
// default lies between them, and a separate template has all defaults.
func (f *factor) tried() []int {
	if len(f.levels) == 2 {
		return []int{1, 2}
	}
	return []int{0, 1}
}

// row gives the level of each factor; 0 is the default.
type row []int

func (r row) params() *cloud.Params {
	p := cloud.Defaults()
	p.Version = "v1.2.3"
	for i, level := range r {
		if level > 0 {
			factors[i].levels[level-1](&p)
		}
	}
	if p.NoIAM { // the user supplies the roles of the functions that exist
		for _, f := range []struct {
			none bool
			role *string
		}{{p.NoAggregator, &p.AggregatorRole}, {p.NoProvisioner, &p.ProvisionerRole}, {!p.ConfigFlow, &p.ConfigRole}} {
			if !f.none {
				*f.role = role("ours")
			}
		}
	}
	return &p
}

// pair is two factors, each at one level.
type pair struct{ a, la, b, lb int }

func (p pair) String() string {
	return fmt.Sprintf("--%s %d and --%s %d", factors[p.a].name, p.la, factors[p.b].name, p.lb)
}

func (p pair) before(q pair) bool {
	return cmp.Or(cmp.Compare(p.a, q.a), cmp.Compare(p.b, q.b), cmp.Compare(p.la, q.la), cmp.Compare(p.lb, q.lb)) < 0
}

func (p pair) row() row {
	r := make(row, len(factors))
	r[p.a], r[p.b] = p.la, p.lb
	return r
}

// pairs returns all valid pairs, and those that are refused on their own.
func pairs() (open map[pair]bool, refused []pair) {
	open = map[pair]bool{}
	for a := range factors {
		for b := a + 1; b < len(factors); b++ {
			for _, la := range factors[a].tried() {
				for _, lb := range factors[b].tried() {
					p := pair{a, la, b, lb}
					if p.row().params().Check() == nil {
						open[p] = true
					} else {
						refused = append(refused, p)
					}
				}
			}
		}
	}
	return open, refused
}

// cover returns rows in which all pairs occur. Each row starts with a pair that is still open, and then picks for each
// other factor the level that closes most pairs.
func cover(open map[pair]bool) []row {
	rnd := rand.New(rand.NewPCG(1, 2))
	closed := func(r row, i int) int {
		n := 0
		for j := range r {
			if j == i {
				continue
			}
			p := pair{min(i, j), r[min(i, j)], max(i, j), r[max(i, j)]}
			if open[p] {
				n++
			}
		}
		return n
	}
	var rows []row
	for len(open) > 0 {
		var first pair // the first in order, so that every run has the same rows
		for i, p := range slices.Collect(maps.Keys(open)) {
			if i == 0 || p.before(first) {
				first = p
			}
		}
		r := first.row()
		for _, i := range rnd.Perm(len(factors)) {
			if i == first.a || i == first.b {
				continue
			}
			best, most := 0, -1
			for _, level := range factors[i].tried() {
				r[i] = level
				if n := closed(r, i); n > most && r.params().Check() == nil {
					best, most = level, n
				}
			}
			r[i] = best
		}
		for i := range r {
			for j := i + 1; j < len(r); j++ {
				delete(open, pair{i, r[i], j, r[j]})
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// TestLint lints every pair of parameters, with all variants in one run of cfn-lint, because it is slow to start.
func TestLint(t *testing.T) {
	t.Parallel()
	linter := mototest.Tool(t, "cfn-lint")
	open, refused := pairs()
	for _, p := range refused {
		err := p.row().params().Check().Error()
		if !strings.Contains(err, "--"+factors[p.a].name) && !strings.Contains(err, "--"+factors[p.b].name) {
			t.Errorf("%s: refused with %q", p, err)
		}
	}
	n := len(open)
	rows := cover(open)
	t.Logf("%d pairs in %d templates, %d pairs refused", n, len(rows), len(refused))
	dir := t.TempDir()
	files, largest := []string{"--"}, 0
	write := func(name string, d cloud.Deployment) {
		text, err := cloud.Render(d)
		must(t, err)
		if largest = max(largest, len(text)); len(text) > cloud.MaxInline {
			t.Errorf("%s: %d bytes, CloudFormation takes %d", name, len(text), cloud.MaxInline)
		}
		path := filepath.Join(dir, name+".json")
		must(t, os.WriteFile(path, text, 0o600))
		files = append(files, path)
	}
	for i, r := range rows {
		write(fmt.Sprintf("pair-%02d", i), r.params())
		if _, err := cloud.RenderTerraform(r.params()); err != nil {
			t.Error(err)
		}
	}
	for name, d := range deployments() {
		write(name, d)
	}
	for name, d := range variants() {
		write(name, d)
	}
	t.Logf("the largest has %d bytes", largest)
	if out, err := exec.CommandContext(t.Context(), linter, files...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// variants are cells, edges and gates that differ from those of the golden files.
func variants() map[string]cloud.Deployment {
	bare, sealed := cell(), cell()
	bare.Replicas, bare.Topic, bare.NoAlarms, bare.NoRetain = 0, "", true, true
	sealed.KMSKey, sealed.AlarmTopic = most().KMSKey, most().AlarmTopic
	sealed.Tags = map[string]string{"team": "gateway"}
	plain, world := edge(), edge()
	plain.API, plain.Stage, plain.Header, plain.Window = "", "", "", 60
	world.Global, world.NoPlan, world.API, world.Stage = true, true, "", ""
	open := gate()
	open.Alarms, open.Bake, open.Tags = nil, 0, map[string]string{"team": "gateway"}
	return map[string]cloud.Deployment{"cell-bare": bare, "cell-sealed": sealed, "edge-plain": plain, "edge-global": world, "gate-bare": open}
}
