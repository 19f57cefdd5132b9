// Package simulate runs a fleet of processes that share limits over a table in DynamoDB, in virtual time: thousands of
// them for minutes, in seconds, the same way each time for the same seed.
//
// The arithmetic (internal/bucket) and the circuit breaker (internal/breaker) are the real ones. DynamoDB and the
// driver's planning of writes are a model of store/dynamodb at the level of the token clock, for buckets of one limit.
// That the model does what the driver does is a test: both run the same scenarios and are compared. What the model
// leaves out is in docs/adr/0020-simulate-models-the-driver.md.
package simulate
