package store

import (
	"sync/atomic"
	"unsafe"
)

// Ref is a place beside a caller's prepared debit where a driver remembers where the bucket lives, so that it need
// not look it up again. What it holds is a hint: a driver must find it out when the bucket is no longer there.
//
// A Ref belongs to one bucket of one store. The zero value is empty. It is one word, since it is read, out of the
// processor's caches, with every decision: [Remember] and [Recall] are its typed access.
type Ref struct{ p unsafe.Pointer }

// Remember puts where a bucket lives into a Ref; into a nil one, nothing. A driver uses one type T for all its Refs.
func Remember[T any](r *Ref, place *T) {
	if r != nil {
		atomic.StorePointer(&r.p, unsafe.Pointer(place))
	}
}

// Recall returns what [Remember] put into a Ref last, or nil. T must be the type that was remembered.
func Recall[T any](r *Ref) *T {
	if r == nil {
		return nil
	}
	return (*T)(atomic.LoadPointer(&r.p))
}
