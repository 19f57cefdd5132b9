// Package table keeps buckets in memory for the embedded stores: memory, which is nothing more, and disk, which makes
// them durable through a [Journal].
//
// Buckets live in sharded maps and are locked one by one; a take over several locks them in the order of their keys.
// A caller's [store.Ref] leads straight to its bucket, so the maps are only consulted the first time. Buckets that
// are full carry no information and are evicted as others are born; their counters are handed over first.
//
// Time never runs backwards in effect: a bucket is never judged at an instant before its last write, and none before
// an eviction, of whatever bucket.
package table
