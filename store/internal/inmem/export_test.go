package inmem

import "github.com/weirlimits/weir/store"

// Key returns the key under which a table keeps a bucket.
func Key(b store.Bucket) string { return string(appendKey(nil, b)) }
