// Package load sends requests to a limiter according to a scenario, and measures the answers.
//
//	scenario + settings ── plan ──> when (shape), who and what (draw) ── run ──> target: a store, HTTP or gRPC
//	                                                                      │
//	                                    report, comparison, HTML <──── tally, which merges
//
// In an open loop, calls are due at times that do not depend on the answers, and latency counts from when a call was
// due. So a stalled target does not receive fewer calls, and the calls that it delayed are not left out. How late the
// runner itself began its calls is measured separately and reported. In a closed loop, each user waits for an answer,
// pauses, and calls again.
//
// The n-th call of an open loop is a function of the seed and n alone: however many callers or workers there are,
// together they make the same calls.
package load
