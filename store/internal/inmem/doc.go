// Package inmem keeps buckets in memory for the embedded stores: memory, which adds nothing, and disk, which makes
// them durable through a [Journal].
//
// Buckets live in sharded maps and are locked one by one; a take over several buckets locks them in the order of
// their keys.
// Full buckets carry no information and are evicted when others are born; their counters are handed over first.
//
// Time never runs backwards in effect: no bucket is judged at an instant before its last write, and none before the
// eviction of any bucket.
package inmem
