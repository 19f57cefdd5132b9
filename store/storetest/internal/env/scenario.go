package env

import (
	"testing"
)

// Scenario is one test of the suite.
type Scenario struct {
	Name  string
	Need  Caps
	Peer  bool // requires Harness.Peer
	Harm  bool // requires Harness.Harm
	Hot   bool // requires Harness.Throttle
	Cut   bool // requires Harness.Cut
	Aside bool // about the catalog or lists, not about how buckets are written
	Run   func(t testing.TB, h Harness)
}

// Suite is a named group of scenarios, defined in one file.
type Suite struct {
	Name      string
	Scenarios []Scenario
}

// OnStore turns a function that needs an open store into a scenario's body.
func OnStore(f func(e *Env)) func(testing.TB, Harness) {
	return func(t testing.TB, h Harness) {
		t.Helper()
		f(Open(t, t, h, Noon))
	}
}

// Aside marks scenarios as not being about buckets.
func Aside(scs []Scenario) []Scenario {
	for i := range scs {
		scs[i].Aside = true
	}
	return scs
}
