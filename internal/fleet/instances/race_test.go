//go:build race

package instances_test

const race = true
