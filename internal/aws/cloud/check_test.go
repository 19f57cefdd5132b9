package cloud_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/aws/cloud"
)

// Each error names the flag and the remedy.
func TestCheck(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*cloud.Params){
		`--stack "w": must be 3 to 50 letters`:                    func(p *cloud.Params) { p.Stack = "w" },
		`--stack "my_weir": must be`:                              func(p *cloud.Params) { p.Stack = "my_weir" },
		`--billing "free": must be on-demand or provisioned`:      func(p *cloud.Params) { p.Billing = "free" },
		`--memory 64: must be from 128 to 3008 MB`:                func(p *cloud.Params) { p.Memory = 64 },
		`--timeout 901: must be from 1 to 900 seconds`:            func(p *cloud.Params) { p.Timeout = 901 },
		`--concurrency 1001: must be from 1 to 1000`:              func(p *cloud.Params) { p.Concurrency = 1001 },
		`--pitr-days 36: must be from 1 to 35 days, or 0: none`:   func(p *cloud.Params) { p.PITRDays = 36 },
		`--log-days 31: CloudWatch supports 1 3 5`:                func(p *cloud.Params) { p.LogDays = 31 },
		`--duration-alarm 0: must be from 1 to 100 percent`:       func(p *cloud.Params) { p.DurationAlarm = 0 },
		`--write-min 9: is more than --write-max 8`:               func(p *cloud.Params) { p.WriteMin, p.WriteMax = 9, 8 },
		`--batch 1000: needs --batch-window`:                      func(p *cloud.Params) { p.BatchWindow = 0 },
		`--tag weir:x: aws: and weir: are reserved`:               func(p *cloud.Params) { p.Tags = map[string]string{"weir:x": "y"} },
		`--alarm-topic "oncall": must be the ARN`:                 func(p *cloud.Params) { p.AlarmTopic = "oncall" },
		`--code-bucket and --code-key must be used together`:      func(p *cloud.Params) { p.CodeKey = "x" },
		`--archive-days 30: must be more than --archive-cold`:     func(p *cloud.Params) { p.ArchiveDays = 30 },
		`--no-iam: the function needs your own role: set --aggr`:  func(p *cloud.Params) { p.NoIAM = true },
		`--config-role: there is no such function with no --c`:    func(p *cloud.Params) { p.ConfigRole = "arn:aws:iam::123456789012:role/x" },
		`--roles: nobody could assume them: set --tru`:            func(p *cloud.Params) { p.Roles = true },
		`--role-name-format "acme": must contain {} exactly once`: func(p *cloud.Params) { p.RoleNameFormat = "acme" },
		`makes names of 65 characters, IAM allows 64`:             func(p *cloud.Params) { p.RoleNameFormat = strings.Repeat("x", 54) + "{}" },
		`--deletion-protection: the stack could not be delete`:    func(p *cloud.Params) { p.DeletionProtection, p.NoRetain = true, true },
		`--kms-key "alias/x": must be the ARN of a key`:           func(p *cloud.Params) { p.KMSKey = "alias/x" },
		`--permission-boundary "a b": must be the name or the`:    func(p *cloud.Params) { p.PermissionBoundary = "a b" },
	} {
		p := cloud.Defaults()
		change(&p)
		if _, err := cloud.Template(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestCheckCell(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*cloud.Cell){
		`--vpc "": must be the id`:                  func(c *cloud.Cell) { c.VPC = "" },
		`--replicas 1: needs a --subnet in another`: func(c *cloud.Cell) { c.Subnets = c.Subnets[:1] },
		`--topic "x": must be the ARN`:              func(c *cloud.Cell) { c.Topic = "x" },
		`--client-group []: at least one is`:        func(c *cloud.Cell) { c.Clients = nil },
		`--node-type "large": must be a type`:       func(c *cloud.Cell) { c.NodeType = "large" },
	} {
		c := cell()
		change(c)
		if _, err := cloud.Render(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// The floor exceeds what any single entity may do under the most generous of the limits.
func TestEdgeSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		change        func(*cloud.Edge)
		window, burst float64
		rate          float64
	}{
		{"300 s of 600 a minute and a burst of 900, twice; 50,000 at once a day are more", func(*cloud.Edge) {}, 100_348, 100_000, 20},
		{"without headroom", func(e *cloud.Edge) { e.Headroom, e.Rates = 100, e.Rates[:1] }, 3900, 900, 10},
		{"a limit so small that WAF cannot hold it", func(e *cloud.Edge) { e.Rates = []cloud.Rate{{Amount: 1, Period: time.Hour, Burst: 1}} }, 10, 2, 0.01},
	} {
		e := edge()
		c.change(e)
		text, err := cloud.Render(e)
		must(t, err)
		all := resources(t, text)
		rule := all["Floor"].Properties["Rules"].([]any)[0].(map[string]any)["Statement"].(map[string]any)["RateBasedStatement"].(map[string]any)
		plan := all["Plan"].Properties["Throttle"].(map[string]any)
		if rule["Limit"] != c.window || plan["BurstLimit"] != c.burst || plan["RateLimit"] != c.rate {
			t.Errorf("%s: %v a window, %v, want %v, %v, %v", c.name, rule["Limit"], plan, c.window, c.rate, c.burst)
		}
	}
	e := edge()
	e.Headroom = 50
	if _, err := cloud.Render(e); err == nil || !strings.Contains(err.Error(), "would refuse what the limit allows") {
		t.Errorf("error %v of a floor below the limit", err)
	}
}
