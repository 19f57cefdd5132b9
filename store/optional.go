package store

import "context"

// InProcess is implemented by stores whose Take, Settle and Peek never wait for anything outside the process. The
// limiter then does not arm a deadline for each call.
type InProcess interface {
	// Find returns where a bucket is kept, for [InProcess.TakeOne], or nil if it does not exist. All results have the
	// same type.
	Find(Bucket) any
	// TakeOne is a Take of one charge, neither forced nor in shadow, on a bucket that Find returned. If that bucket no
	// longer exists, or its own limits are not the charge's, ok is false and nothing was decided: the caller must then
	// use Take.
	TakeOne(bucket any, charge *Charge) (allowed, ok bool)
}

// Exclusive is implemented by stores whose data no other process uses while they are open.
type Exclusive interface {
	// Exclusive does nothing: it marks the store.
	Exclusive()
}

// Epochs is implemented by stores that several processes write to.
type Epochs interface {
	// Epochs returns the current epochs of namespaces, in the order given, at less cost than Get. The epoch of a
	// namespace in which nothing was ever committed is 0.
	Epochs(ctx context.Context, namespaces ...string) ([]uint64, error)
}

// Watcher is implemented by stores that report commits.
type Watcher interface {
	// Watch reports the commits of all processes, in order within each namespace, from when it calls ready until ctx
	// ends or the watch breaks; it then returns an error. It may call ready again; commits before that may be missing.
	// Neither function may block.
	Watch(ctx context.Context, ready func(), changed func(Changes)) error
}

// Changes are what one commit changed in one namespace. Records that decisions do not depend on may be missing.
type Changes struct {
	Namespace string
	Epoch     uint64 // the namespace's epoch after the commit
	Keys      []Key
}
