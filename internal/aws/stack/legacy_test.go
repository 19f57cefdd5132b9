package stack_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/cloudtest"
)

// TestLegacy: the template of a stack that was deployed before templates had parameters, with every option, yields
// values with which the template describes the same resources under the same names.
func TestLegacy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/before-parameters.json")
	must(t, err)
	text = bytes.ReplaceAll(text, []byte(`#AUDIT\"`), []byte(`#AUDIT#\"`)) // the head of the chain is no event
	old, err := stack.Parse(text)
	must(t, err)
	values, tags, err := stack.Legacy(old, "arn:aws:cloudformation:eu-central-1:"+account+":stack/weir/1")
	must(t, err)
	if tags["team"] != "gateway" || len(tags) != 1 || values["KmsKey"] == "" || values["Trust"] == "" || values["NamePrefix"] != "acme-" {
		t.Errorf("tags %v, values %v", tags, values)
	}
	code := map[string]string{"CodeBucket": "code", "CodeKey": "weir/abc.zip"}
	want, err := cloudtest.Resolve(old, code)
	must(t, err)
	delete(values, "CodeBucket")
	delete(values, "CodeKey")
	got := resolved(t, stack.Weir, values)
	for _, r := range []cloudtest.Resolved{want, got} {
		for id, one := range r.Resources {
			properties := one["Properties"].(map[string]any)
			if strings.HasPrefix(id, "Index") && strings.HasSuffix(id, "Throttles") {
				delete(r.Resources, id) // the table's own alarms count what its indexes throttle
			}
			if id == "ReadCost" || id == "WriteCost" || id == "Cost" {
				delete(r.Resources, id) // one alarm, in money, replaces two
			}
			delete(properties, "PolicyDocument") // tests of their own evaluate what policies allow
			delete(properties, "Policies")
			if one["Type"] == "AWS::Logs::LogGroup" {
				delete(properties, "KmsKeyId")
			}
			delete(properties, "Tags")             // the stack's own replace them
			if strings.HasSuffix(id, "Duration") { // metric math replaces arithmetic
				for _, k := range []string{"Threshold", "MetricName", "Namespace", "Statistic", "Period", "Dimensions", "Metrics"} {
					delete(properties, k)
				}
			}
			delete(properties, "DashboardBody")
			if one["Type"] == "AWS::Lambda::Function" {
				delete(properties, "Description")
				if e, ok := properties["Environment"].(map[string]any); ok { // a table had all windows of all resources
					delete(e["Variables"].(map[string]any), "WEIR_USAGE_WINDOWS")
					delete(e["Variables"].(map[string]any), "WEIR_USAGE_WITHOUT")
				}
			}
			if p, ok := properties["TargetTrackingScalingPolicyConfiguration"].(map[string]any); ok {
				delete(p, "ScaleOutCooldown") // 0 by default
			}
			same(one)
		}
		for _, o := range r.Outputs {
			delete(o, "Description")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("before -, now +:\n%s", diff)
	}
	if values, _, err := stack.Legacy(load(t, stack.Weir).Plain(), ""); values != nil || err != nil {
		t.Errorf("a template with parameters yields %v, %v", values, err)
	}
}

// same removes empty lists, and makes the conditions on keys equal, which name DynamoDB of the region and of any.
func same(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, one := range v {
			list, ok := one.([]any)
			m, _ := one.(map[string]any)
			switch {
			case ok && len(list) == 0:
				delete(v, k)
			case m["kms:ViaService"] != nil:
				delete(v, k)
			default:
				same(one)
			}
		}
	case []any:
		for _, one := range v {
			same(one)
		}
	}
}
