//go:build race

package dynamodb_test

// raced: the race detector is on, and all takes ten times as long.
const raced = true
