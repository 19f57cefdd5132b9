// Package history tests a store over sequences of calls, of one caller and of many: the invariants, agreement with an
// exact model, linearizability, and small protocols in every interleaving.
package history

import (
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// Suites returns the suites of this package.
func Suites() []Suite {
	return []Suite{
		{Name: "invariants", Scenarios: invariantScenarios()},
		{Name: "quotas", Scenarios: quotaScenarios()},
		{Name: "balances", Scenarios: balanceScenarios()},
		{Name: "time", Scenarios: timeScenarios()},
		{Name: "concurrency", Scenarios: concurrencyScenarios()},
		{Name: "tenants", Scenarios: tenantScenarios()},
		{Name: "linear", Scenarios: linearScenarios()},
		{Name: "protocols", Scenarios: protocolScenarios()},
	}
}
