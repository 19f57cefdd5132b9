// Package catalog tests what a store keeps beside buckets: records with their lists and epochs, and usage.
package catalog

import (
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// Suites returns the suites of this package.
func Suites() []Suite {
	return []Suite{
		{Name: "catalog", Scenarios: Aside(catalogScenarios())},
		{Name: "list", Scenarios: Aside(listScenarios())},
		{Name: "epoch", Scenarios: Aside(epochScenarios())},
	}
}

// Usage returns the suite of usage.
func Usage() Suite { return Suite{Name: "usage", Scenarios: usageScenarios()} }
