// Package aggregate books usage from the stream of a DynamoDB table, and splits shards that are written to too often.
//
// A [Handler] is handed batches by Lambda's event source mapping. A [Reader] reads the stream itself: any number of
// processes share its shards by leases in the table. Both only decide what to repeat: what a record counts for, and that
// it counts once however often it is delivered, is the store's [dynamodb.Ledger].
//
// Nothing here ever refills a bucket: a level is compared with a clock that goes on by itself, so that no debit waits
// for anybody's write.
package aggregate
