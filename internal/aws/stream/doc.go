// Package stream books usage from the stream of a DynamoDB table, and splits shards that are written to too often.
//
// A [Handler] receives batches from Lambda's event source mapping. A [Reader] reads the stream itself: any number of
// processes share its shards through leases in the table. Both decide only what to retry. [dynamodb.Ledger] decides
// what a record counts for, and counts it once however often it is delivered.
//
// Nothing here refills a bucket: a bucket's level is compared with a clock that advances by itself, so no debit waits
// for a write.
package stream
