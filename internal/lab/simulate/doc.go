// Package simulate runs a fleet of processes that share limits over a DynamoDB table, in virtual time: it simulates
// minutes of thousands of processes in seconds, and gives the same result each time for the same seed.
//
// The arithmetic (internal/clock) and the circuit breaker (internal/outage/breaker) are the real ones. DynamoDB, and
// the driver's planning of writes, are a model of store/dynamodb at the level of the token clock, for buckets with one
// limit. A test checks that the model does what the driver does: it runs both on the same scenarios and compares them.
// docs/adr/0020-simulate-models-the-driver.md lists what the model leaves out.
package simulate
