//go:build !race

package dynamodb_test

const raced = false
