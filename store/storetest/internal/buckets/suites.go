// Package buckets tests what a store answers for buckets, call by call: takes, settles, changes of limits, counters and
// lists.
package buckets

import (
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// Suites returns the suites of this package.
func Suites() []Suite {
	return []Suite{
		{Name: "vectors", Scenarios: vectorScenarios()},
		{Name: "take", Scenarios: takeScenarios()},
		{Name: "shadow", Scenarios: shadowScenarios()},
		{Name: "mistakes", Scenarios: mistakeScenarios()},
		{Name: "limits", Scenarios: limitScenarios()},
		{Name: "overrides", Scenarios: overrideScenarios()},
		{Name: "ids", Scenarios: idScenarios()},
		{Name: "settle", Scenarios: settleScenarios()},
		{Name: "terms", Scenarios: termScenarios()},
		{Name: "once", Scenarios: onceScenarios()},
		{Name: "counters", Scenarios: counterScenarios()},
		{Name: "owed", Scenarios: owedScenarios()},
		{Name: "buckets", Scenarios: bucketScenarios()},
		{Name: "bounds", Scenarios: boundScenarios()},
		{Name: "closed", Scenarios: closedScenarios()},
	}
}
