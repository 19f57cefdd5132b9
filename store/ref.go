package store

import "sync/atomic"

// Ref is a place beside a caller's prepared debit where a driver remembers where the bucket lives, so that it need
// not look it up again. What it holds is a hint: a driver must find it out when the bucket is no longer there.
//
// A Ref belongs to one bucket of one store. The zero value is empty.
type Ref struct{ v atomic.Value }

// Load returns what was remembered, or nil.
func (r *Ref) Load() any {
	if r == nil {
		return nil
	}
	return r.v.Load()
}

// Store remembers v, which must always have the same concrete type.
func (r *Ref) Store(v any) {
	if r != nil {
		r.v.Store(v)
	}
}
