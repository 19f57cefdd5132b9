package stack_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/aws/stack"
)

// Each error names the flag and the remedy.
func TestCheck(t *testing.T) {
	t.Parallel()
	cell := func(more stack.Values) stack.Values {
		all := examples()[stack.Cell]
		maps.Copy(all, more)
		return all
	}
	for _, c := range []struct {
		kind, want string
		values     stack.Values
	}{
		{stack.Weir, `--stack "w": must be 3 to 50 letters`, stack.Values{"Stack": "w"}},
		{stack.Weir, `--stack "my_weir": must be`, stack.Values{"Stack": "my_weir"}},
		{stack.Weir, `--billing "free": must be on-demand or provisioned`, stack.Values{"Billing": "free"}},
		{stack.Weir, `--memory 64: must be from 128 to 3008`, stack.Values{"Memory": "64"}},
		{stack.Weir, `--timeout 901: must be from 1 to 900`, stack.Values{"Timeout": "901"}},
		{stack.Weir, `--concurrency 1001: must be from 0 to 1000`, stack.Values{"Concurrency": "1001"}},
		{stack.Weir, `--pitr-days 36: must be from 0 to 35`, stack.Values{"PitrDays": "36"}},
		{stack.Weir, `--log-days "31": must be 1 or 3 or 5`, stack.Values{"LogDays": "31"}},
		{stack.Weir, `--duration-alarm 0: must be from 1 to 100`, stack.Values{"DurationAlarm": "0"}},
		{stack.Weir, `--write-min 9: is more than --write-max 8`, stack.Values{"WriteMin": "9", "WriteMax": "8"}},
		{stack.Weir, `--batch 1000: needs --batch-window`, stack.Values{"BatchWindow": "0"}},
		{stack.Weir, `--alarm-topic "oncall": must be the ARN`, stack.Values{"AlarmTopic": "oncall"}},
		{stack.Weir, `--archive-days 30: must be more than --archive-cold`, stack.Values{"ArchiveDays": "30"}},
		{stack.Weir, `--no-iam: the function needs your own role: set --aggregator-role`, stack.Values{"NoIam": "true"}},
		{stack.Weir, `--config-role: there is no such function`, stack.Values{"ConfigRoleArn": role("x")}},
		{stack.Weir, `x": must be the ARN`, stack.Values{"Trust": role("a") + ",x"}},
		{stack.Weir, `--trust: there are no roles with`, stack.Values{"Trust": role("a"), "NoPolicies": "true"}},
		{stack.Weir, `make names of 65 characters, IAM allows 64`, stack.Values{"NamePrefix": strings.Repeat("x", 54)}},
		{stack.Weir, `--kms-key "alias/x": must be the ARN of a key`, stack.Values{"KmsKey": "alias/x"}},
		{stack.Weir, `--permission-boundary "a b": must be the ARN`, stack.Values{"PermissionBoundary": "a b"}},
		{stack.Cell, `--vpc: is required`, stack.Values{}},
		{stack.Cell, `--vpc "": must be the id`, cell(stack.Values{"Vpc": ""})},
		{stack.Cell, `--replicas 1: needs a --subnet in another`, cell(stack.Values{"Subnet": "subnet-0123456789abcdef0"})},
		{stack.Cell, `--topic "x": must be the ARN`, cell(stack.Values{"Topic": "x"})},
		{stack.Cell, `--client-group "": must be the id`, cell(stack.Values{"ClientGroup1": ""})},
		{stack.Cell, `--node-type "large": must be a type`, cell(stack.Values{"NodeType": "large"})},
		{stack.Gate, `--rollback-alarm "x": must be the ARN`, stack.Values{"RollbackAlarm1": "x"}},
		{
			stack.Gate, `is given twice`,
			stack.Values{"RollbackAlarm1": alarm("x"), "RollbackAlarm2": alarm("x")},
		},
		{
			stack.Edge, `--api and --stage must be used together`,
			stack.Values{"Api": "abcdef1234", "FloorLimit": "10", "PlanRate": "1", "PlanBurst": "1"},
		},
	} {
		tmpl := load(t, c.kind)
		err := tmpl.Check(tmpl.Full(c.values))
		if _, ok := errors.AsType[*stack.ValueError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.kind, err, c.want)
		}
	}
	if err := stack.CheckTags(map[string]string{"weir:x": "y"}); err == nil || !strings.Contains(err.Error(), "are reserved") {
		t.Errorf("error %v of a reserved tag", err)
	}
}

// The floor exceeds what any single entity may do under the most generous of the limits.
func TestEdgeSize(t *testing.T) {
	t.Parallel()
	rates := []stack.Rate{
		{Amount: 600, Period: time.Minute, Burst: 900}, {Amount: 50_000, Period: 24 * time.Hour, Burst: 50_000},
	}
	for _, c := range []struct {
		name     string
		rates    []stack.Rate
		headroom int
		want     stack.Values
	}{
		{
			"300 s of 600 a minute and a burst of 900, twice; 50,000 at once a day are more", rates, 200,
			stack.Values{"FloorLimit": "100348", "PlanBurst": "100000", "PlanRate": "20"},
		},
		{"without headroom", rates[:1], 100, stack.Values{"FloorLimit": "3900", "PlanBurst": "900", "PlanRate": "10"}},
		{
			"a limit so small that WAF cannot hold it",
			[]stack.Rate{{Amount: 1, Period: time.Hour, Burst: 1}},
			200,
			stack.Values{"FloorLimit": "10", "PlanBurst": "2", "PlanRate": "0.01"},
		},
	} {
		got := stack.Values{}
		if err := stack.SizeEdge(got, c.rates, c.headroom); err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v (%v), want %v", c.name, got, err, c.want)
		}
	}
	if err := stack.SizeEdge(stack.Values{}, rates, 50); err == nil || !strings.Contains(err.Error(), "would refuse what the limit allows") {
		t.Errorf("error %v of a floor below the limit", err)
	}
}
