package cloud

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"
)

// Rate is what one entity may ask for at most: of a limit that counts requests.
type Rate struct {
	Amount int64 // requests per Period
	Period time.Duration
	Burst  int64 // requests at once
}

// Edge are the parameters of a floor in front of weir that stands when its store does not: a rate rule of WAF by address
// or header, and a usage plan of API Gateway. Both are best effort: AWS counts late and about. So it is sized above what
// weir allows, and only stops what is far beyond. The flag of each is the field's comment. [EdgeDefaults] has the defaults.
type Edge struct {
	Stack   string            // --stack
	Version string            // of weir, for the tag weir:version
	Tags    map[string]string // --tag KEY=VALUE

	Rates    []Rate // of the manifest: the most generous is the floor's
	Headroom int    // --headroom: percent of it
	Window   int    // --window: seconds over which WAF counts
	Header   string // --header: by which requests are told apart; "": by address
	Global   bool   // --global: for CloudFront rather than a region
	API      string // --api: id of the API whose stage has the usage plan; "": none has
	Stage    string // --stage
	NoPlan   bool   // --no-plan: no usage plan
}

// EdgeDefaults returns the parameters of a floor of which nothing is said but the rates.
func EdgeDefaults() Edge { return Edge{Stack: "weir-edge", Headroom: 200, Window: 300} }

var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	apiID      = regexp.MustCompile(`^[a-z0-9]{4,32}$`)
	stageName  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// What WAF takes as a rate.
const (
	leastRate = 10
	mostRate  = 2_000_000_000
)

// Check refuses what AWS would refuse. The error names the flag and what to do.
func (e *Edge) Check() error {
	if err := checkNames(e.Stack, e.Tags); err != nil {
		return err
	}
	for _, r := range e.Rates {
		if r.Amount <= 0 || r.Period <= 0 {
			return fmt.Errorf("a limit of %d per %s: must allow something", r.Amount, r.Period)
		}
	}
	switch {
	case len(e.Rates) == 0:
		return fmt.Errorf("--limit: the manifests declare no such limit of requests")
	case e.Headroom < 100 || e.Headroom > 10_000:
		return fmt.Errorf("--headroom %d: must be from 100 to 10000 percent: below, the floor would refuse what the limit allows", e.Headroom)
	case !slices.Contains([]int{60, 120, 300, 600}, e.Window):
		return fmt.Errorf("--window %d: WAF knows 60, 120, 300 and 600 seconds", e.Window)
	case e.Header != "" && !headerName.MatchString(e.Header):
		return fmt.Errorf("--header %q: is no name of a header", e.Header)
	case (e.API == "") != (e.Stage == ""):
		return fmt.Errorf("--api and --stage go together")
	case e.API != "" && e.NoPlan:
		return fmt.Errorf("--api: there is no usage plan with --no-plan, leave one out")
	case e.API != "" && (!apiID.MatchString(e.API) || !stageName.MatchString(e.Stage)):
		return fmt.Errorf("--api %q --stage %q: are no API's id and stage", e.API, e.Stage)
	}
	return nil
}

// window returns how many requests an entity is let through in a window: what its limit allows in it, a burst included.
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

const bestEffort = "Best effort: AWS counts late and about. What is exact is the limit of weir behind it"

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
	s.out("FloorArn", "The web ACL, to be associated with what is in front of weir", att{"Floor", "Arn"})
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
	s.out("PlanId", "The usage plan, to which API keys are added", ref("Plan"))
	return s
}
