// Package dynamotest is what tests of the DynamoDB store stand on: an engine that speaks DynamoDB's protocol, clients
// of it, and [Fake], the calls that the store makes over a map in memory, for what needs more writes than the engine
// gives, or each call in the test's hand. A test holds fake and engine against each other.
package dynamotest
