package store

// Immediate is implemented by stores whose Take, Settle and Peek never wait for anything outside the process. The
// limiter then does not arm a deadline for each call.
type Immediate interface {
	// TakeOne is a brief Take of one charge, neither forced nor in shadow, on the bucket that ref remembers from a Take before. It
	// is not ok, and nothing was decided, when the bucket is not there any more or has other limits of its own than
	// the charge's: then a Take is called for.
	TakeOne(ref *Ref, charge *Charge) (allowed, ok bool)
}
