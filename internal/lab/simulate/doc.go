// Package simulate runs a fleet of processes that share limits over a DynamoDB table, in virtual time: it simulates
// minutes of thousands of processes in seconds, and gives the same result each time for the same seed.
//
// The arithmetic (internal/clock), the planning of writes (internal/batch/plan) and the circuit breaker
// (internal/outage/breaker) are the real ones. Where a request goes in a split bucket follows store/dynamodb, and the
// table applies what was planned to items of its own. A test runs the driver on the same scenarios and compares them.
package simulate
