//go:build race

package aggregate_test

const raceOn = true
