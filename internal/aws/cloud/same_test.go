package cloud_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/aws/cloud"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/cloudtest"
)

const stackID = "arn:aws:cloudformation:eu-central-1:" + account + ":stack/weir/1"

// TestSame compares the templates with parameters with what is described here, for all pairs of parameters.
func TestSame(t *testing.T) {
	t.Parallel()
	open, _ := pairs()
	weir, err := stack.Load(stack.Weir)
	must(t, err)
	for i, r := range cover(open) {
		p := r.params()
		p.NoRetain, p.Tracing = false, false
		if p.PolicyNameFormat != p.RoleNameFormat {
			p.PolicyNameFormat = p.RoleNameFormat
		}
		text, err := cloud.Render(p)
		must(t, err)
		note, err := json.Marshal(map[string]any{"Metadata": map[string]any{"Weir": map[string]any{"Params": p}}})
		must(t, err)
		doc, err := stack.Parse(note)
		must(t, err)
		values, tags, err := stack.Legacy(doc, stackID)
		must(t, err)
		if len(tags) != len(p.Tags) {
			t.Errorf("tags %v", tags)
		}
		if values["CodeBucket"] == "" {
			delete(values, "CodeBucket")
			delete(values, "CodeKey")
		}
		if err := weir.Check(weir.Full(values)); err != nil {
			t.Errorf("row %d: %v", i, err)
		}
		same(t, fmt.Sprintf("row %d: %v", i, values), text, weir, values)
	}
	for name, v := range map[string]stack.Values{
		"cell": {"Vpc": cell().VPC, "Subnet": strings.Join(cell().Subnets, ","), "ClientGroup1": cell().Clients[0], "ClientGroup2": cell().Clients[1], "Topic": cell().Topic},
		"gate": {"RollbackAlarm1": gate().Alarms[0], "RollbackAlarm2": gate().Alarms[1]},
		"edge": {"Api": edge().API, "Stage": edge().Stage, "Header": edge().Header},
		"cell-bare": {"Vpc": cell().VPC, "Subnet": strings.Join(cell().Subnets, ","), "ClientGroup1": cell().Clients[0], "ClientGroup2": cell().Clients[1],
			"Replicas": "0", "NoAlarms": "true"},
		"cell-sealed": {"Vpc": cell().VPC, "Subnet": strings.Join(cell().Subnets, ","), "ClientGroup1": cell().Clients[0], "ClientGroup2": cell().Clients[1], "Topic": cell().Topic,
			"KmsKey": most().KMSKey, "AlarmTopic": most().AlarmTopic},
		"edge-plain":  {"Window": "60"},
		"edge-global": {"Header": edge().Header, "Global": "true", "NoPlan": "true"},
		"gate-bare":   {"GateBake": "0"},
	} {
		d := deployments()[name]
		if d == nil {
			d = variants()[name]
		}
		if c, ok := d.(*cloud.Cell); ok {
			c.NoRetain = false
		}
		text, err := cloud.Render(d)
		must(t, err)
		kind, _, _ := strings.Cut(name, "-")
		tmpl, err := stack.Load(kind)
		must(t, err)
		if e, ok := d.(*cloud.Edge); ok {
			var rates []stack.Rate
			for _, r := range e.Rates {
				rates = append(rates, stack.Rate(r))
			}
			must(t, stack.SizeEdge(v, rates, e.Headroom))
		}
		if err := tmpl.Check(tmpl.Full(v)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same(t, name, text, tmpl, v)
	}
}

func same(t *testing.T, name string, described []byte, tmpl *stack.Template, values stack.Values) {
	t.Helper()
	old, err := stack.Parse(described)
	must(t, err)
	code := map[string]string{"CodeBucket": "code", "CodeKey": "weir/abc.zip"}
	want, err := cloudtest.Resolve(old, code)
	must(t, err)
	if values["CodeBucket"] == "" {
		values["CodeBucket"], values["CodeKey"] = code["CodeBucket"], code["CodeKey"]
	}
	text := tmpl.CloudFormation(values)
	if len(text) > stack.MaxInline {
		t.Errorf("%s: %d bytes", name, len(text))
	}
	doc, err := stack.Parse(text)
	must(t, err)
	got, err := cloudtest.Resolve(doc, values)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for _, r := range []cloudtest.Resolved{want, got} {
		for id, one := range r.Resources {
			properties := one["Properties"].(map[string]any)
			delete(properties, "Tags")
			if strings.HasSuffix(id, "Duration") || id == "ReadCost" || id == "WriteCost" { // metric math now
				for _, k := range []string{"Threshold", "MetricName", "Namespace", "Statistic", "Period", "Dimensions", "Metrics"} {
					delete(properties, k)
				}
			}
			if id == "Dashboard" {
				delete(properties, "DashboardBody")
			}
			if p, ok := properties["TargetTrackingScalingPolicyConfiguration"].(map[string]any); ok {
				delete(p, "ScaleOutCooldown") // 0 by default
			}
			prune2(one)
		}
		for _, o := range r.Outputs {
			delete(o, "Description")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: described -, template +:\n%s", name, diff)
	}
}

// prune2 removes empty lists, and writes the condition of keys as the template does.
func prune2(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, one := range v {
			if l, ok := one.([]any); ok && len(l) == 0 {
				delete(v, k)
				continue
			}
			if m, ok := one.(map[string]any); ok && m["kms:ViaService"] != nil {
				v[k] = map[string]any{"kms:ViaService": "dynamodb"}
				if k == "StringLike" {
					v["StringEquals"] = v[k]
					delete(v, k)
				}
				continue
			}
			prune2(one)
		}
	case []any:
		for _, one := range v {
			prune2(one)
		}
	}
}
