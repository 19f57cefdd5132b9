package store

import (
	"sync/atomic"
	"unsafe"
)

// Ref is a place next to a caller's prepared debit in which a driver remembers where the bucket is, so that it need not
// look it up again. Its contents are a hint: a driver must detect that the bucket is no longer there.
//
// A Ref belongs to one bucket of one store. The zero value is empty. It is a single word, because every decision reads
// it from outside the processor's caches. [Remember] and [Recall] give typed access.
type Ref struct{ p unsafe.Pointer }

// Remember stores the place of a bucket in a Ref; if the Ref is nil, it does nothing. A driver uses one type T for all
// its Refs.
func Remember[T any](r *Ref, place *T) {
	if r != nil {
		atomic.StorePointer(&r.p, unsafe.Pointer(place))
	}
}

// Recall returns what [Remember] last stored in a Ref, or nil. T must be the type that was stored.
func Recall[T any](r *Ref) *T {
	if r == nil {
		return nil
	}
	return (*T)(atomic.LoadPointer(&r.p))
}
