package store

import "context"

// Immediate is implemented by stores whose Take, Settle and Peek never wait for anything outside the process. The
// limiter then does not arm a deadline for each call.
type Immediate interface {
	// TakeOne is a brief Take of one charge, neither forced nor in shadow, on the bucket that ref remembers from a Take before. It
	// is not ok, and nothing was decided, when the bucket is not there any more or has other limits of its own than
	// the charge's: then a Take is called for.
	TakeOne(ref *Ref, charge *Charge) (allowed, ok bool)
}

// Epochs is implemented by stores that several processes write to.
type Epochs interface {
	// Epochs returns the epochs of namespaces as they are now, in their order, for less than a Get costs; 0 is that of a
	// namespace in which nothing was ever committed.
	Epochs(ctx context.Context, namespaces ...string) ([]uint64, error)
}

// Watcher is implemented by stores that tell of commits.
type Watcher interface {
	// Watch tells of the commits of all processes, in the order of each namespace, from when it calls ready until ctx ends
	// or it breaks off, upon which it returns an error. It may call ready again, after which commits may be missing
	// before it. Neither function may wait.
	Watch(ctx context.Context, ready func(), changed func(Changes)) error
}

// Changes are what one commit changed in one namespace; what decisions do not go by may be missing.
type Changes struct {
	Namespace string
	Epoch     uint64 // that the commit raised the namespace's to
	Keys      []Key
}
