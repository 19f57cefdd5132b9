// Package traffictest makes scenarios and plans of traffic for tests. What goes wrong fails the test.
package traffictest

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/lab/traffic"
)

// Named returns a scenario of package traffic.
func Named(t testing.TB, name string) *traffic.Scenario {
	t.Helper()
	sc, err := traffic.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// Plan makes a plan of a scenario. Unless set has another, the warm-up is one second.
func Plan(t testing.TB, sc *traffic.Scenario, set traffic.Settings) *traffic.Plan {
	t.Helper()
	if set.WarmUp == nil {
		warm := traffic.Span(time.Second)
		set.WarmUp = &warm
	}
	p, err := traffic.NewPlan(sc, set)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Decode returns a scenario with the fields that are required, and more.
func Decode(t testing.TB, more string) *traffic.Scenario {
	t.Helper()
	sc, err := traffic.Decode("test", []byte(more+`
users: 10
wait: 0.1s
entities: [{name: user, id: user-%d, pick: own, share: 1}]
resources: [api]
calls: [{name: acquire, op: acquire, weight: 1, tokens: {rpm: 1}}]
limits: {system: {limits: {rpm: {capacity: 1M}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	return sc
}
