package weir

import "github.com/weirlimits/weir/store"

// PartOf returns the share's part of a limit, for tests.
func PartOf(l Limit, sh Share) store.Limit { return sh.of(l.stored(false)) }
