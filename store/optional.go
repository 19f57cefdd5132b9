package store

// Immediate is implemented by stores whose Take, Settle and Peek never wait for anything outside the process. The
// limiter then does not arm a deadline for each call.
type Immediate interface {
	// Immediate only marks.
	Immediate()
}
