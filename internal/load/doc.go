// Package load asks a limiter for decisions as a scenario says, and measures what comes back.
//
//	scenario + settings ── plan ──> when (shape), who and what (draw) ── run ──> target: a store, HTTP or gRPC
//	                                                                      │
//	                                    report, comparison, HTML <──── tally, which merges
//
// In an open loop calls are due at times that do not depend on the answers, and latency counts from when a call was due: a
// target that stalls is not asked less, and what it kept waiting is not left out. How late the runner itself began its
// calls is measured beside, and told. In a closed loop each user waits for an answer, then for a while, then asks again.
//
// The n-th call of an open loop is a function of the seed and n alone: however many callers or workers there are, they ask
// for the same together.
package load
