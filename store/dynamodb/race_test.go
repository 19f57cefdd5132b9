//go:build race

package dynamodb_test

// raced says that the race detector is on, and everything takes ten times as long.
const raced = true
