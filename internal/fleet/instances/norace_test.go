//go:build !race

package instances_test

const raced = false
