// Package dynamotest supports the tests of the DynamoDB store. It has an engine that speaks DynamoDB's protocol,
// clients for it, and [Fake], an in-memory implementation of the calls that the store makes, for tests that need more
// writes than the engine can do or control over each call. A test compares the fake with the engine.
package dynamotest
