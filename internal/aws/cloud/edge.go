package cloud

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"
)

// Rate is the maximum request rate of one entity, from a limit that counts requests.
type Rate struct {
	Amount int64 // requests per Period
	Period time.Duration
	Burst  int64 // requests at once
}

// Edge holds the parameters of a floor in front of weir that holds when weir's store does not: a WAF rate rule by
// address or header, and an API Gateway usage plan. Both are best effort, because AWS counts late and approximately.
// So the floor is sized above what weir allows, and stops only what is far beyond it. Each field's comment names its
// flag. [EdgeDefaults] returns the defaults.
type Edge struct {
	Stack   string            // --stack
	Version string            // of weir, for the tag weir:version
	Tags    map[string]string // --tag KEY=VALUE

	Rates    []Rate // of the manifest: the most generous one sets the floor
	Headroom int    // --headroom: percent of that rate
	Window   int    // --window: seconds over which WAF counts
	Header   string // --header: header that tells callers apart; "": by address
	Global   bool   // --global: for CloudFront instead of a region
	API      string // --api: ID of the API whose stage gets the usage plan; "": none
	Stage    string // --stage
	NoPlan   bool   // --no-plan: no usage plan
}

// EdgeDefaults returns the default parameters of a floor; only the rates must be set.
func EdgeDefaults() Edge { return Edge{Stack: "weir-edge", Headroom: 200, Window: 300} }

var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	apiID      = regexp.MustCompile(`^[a-z0-9]{4,32}$`)
	stageName  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// The range of a WAF rate.
const (
	leastRate = 10
	mostRate  = 2_000_000_000
)

// Check rejects parameters that AWS would refuse. The error names the flag and the remedy.
func (e *Edge) Check() error {
	if err := checkNames(e.Stack, e.Tags); err != nil {
		return err
	}
	for _, r := range e.Rates {
		if r.Amount <= 0 || r.Period <= 0 {
			return fmt.Errorf("a limit of %d per %s: must be positive", r.Amount, r.Period)
		}
	}
	switch {
	case len(e.Rates) == 0:
		return fmt.Errorf("--limit: the manifests declare no such limit on requests")
	case e.Headroom < 100 || e.Headroom > 10_000:
		return fmt.Errorf("--headroom %d: must be from 100 to 10000 percent: below 100, the floor would refuse what the limit allows", e.Headroom)
	case !slices.Contains([]int{60, 120, 300, 600}, e.Window):
		return fmt.Errorf("--window %d: WAF supports 60, 120, 300 and 600 seconds", e.Window)
	case e.Header != "" && !headerName.MatchString(e.Header):
		return fmt.Errorf("--header %q: is not a header name", e.Header)
	case (e.API == "") != (e.Stage == ""):
		return fmt.Errorf("--api and --stage must be used together")
	case e.API != "" && e.NoPlan:
		return fmt.Errorf("--api: there is no usage plan with --no-plan: omit one of them")
	case e.API != "" && (!apiID.MatchString(e.API) || !stageName.MatchString(e.Stage)):
		return fmt.Errorf("--api %q --stage %q: are not the id and stage of an API", e.API, e.Stage)
	}
	return nil
}

// window returns how many requests of an entity the floor admits in a window: what its limit allows there, burst included.
func (e *Edge) window() int {
	most := 0.0
	for _, r := range e.Rates {
		most = max(most, float64(r.Burst)+float64(r.Amount)*float64(time.Duration(e.Window)*time.Second)/float64(r.Period))
	}
	return int(min(mostRate, max(leastRate, math.Ceil(most*float64(e.Headroom)/100))))
}

// throttle returns the rate per second and the burst of the usage plan.
func (e *Edge) throttle() (rate float64, burst int) {
	most := int64(1)
	for _, r := range e.Rates {
		rate = max(rate, float64(r.Amount)/r.Period.Seconds())
		most = max(most, r.Burst, int64(math.Ceil(float64(r.Amount)/r.Period.Seconds())))
	}
	rate = math.Ceil(rate*float64(e.Headroom)) / 100
	return max(rate, 0.01), int(min(math.MaxInt32, math.Ceil(float64(most)*float64(e.Headroom)/100)))
}

const bestEffort = "Best effort: AWS counts late and approximately. The limit of weir behind it is exact"

func (e *Edge) describe() *stack {
	s := newStack(e.Stack, "weir: a floor at the edge. "+bestEffort, allTags(e.Stack, e.Version, e.Tags))
	scope := "REGIONAL"
	if e.Global {
		scope = "CLOUDFRONT"
	}
	count := obj{"AggregateKeyType": "IP", "Limit": e.window(), "EvaluationWindowSec": e.Window}
	if e.Header != "" {
		count["AggregateKeyType"] = "CUSTOM_KEYS"
		count["CustomKeys"] = list{obj{"Header": obj{"Name": e.Header, "TextTransformations": list{obj{"Priority": 0, "Type": "NONE"}}}}}
	}
	seen := func(name string) obj {
		return obj{"CloudWatchMetricsEnabled": true, "SampledRequestsEnabled": true, "MetricName": name}
	}
	s.add("Floor", "AWS::WAFv2::WebACL", obj{
		"Name": e.Stack, "Description": bestEffort, "Scope": scope, "DefaultAction": obj{"Allow": obj{}}, "VisibilityConfig": seen(e.Stack),
		"Rules": list{obj{
			"Name": "rate", "Priority": 0, "Action": obj{"Block": obj{"CustomResponse": obj{"ResponseCode": 429}}},
			"Statement": obj{"RateBasedStatement": count}, "VisibilityConfig": seen(e.Stack + "-rate"),
		}},
	})
	s.out("FloorArn", "The web ACL: associate it with the resource in front of weir", att{"Floor", "Arn"})
	if e.NoPlan {
		return s
	}
	rate, burst := e.throttle()
	plan := obj{
		"UsagePlanName": e.Stack, "Description": bestEffort, "Throttle": obj{"RateLimit": rate, "BurstLimit": burst},
	}
	if e.API != "" {
		plan["ApiStages"] = list{obj{"ApiId": e.API, "Stage": e.Stage}}
	}
	s.add("Plan", "AWS::ApiGateway::UsagePlan", plan)
	s.out("PlanId", "The usage plan: add API keys to it", ref("Plan"))
	return s
}
