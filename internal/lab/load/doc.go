// Package load sends requests to a limiter according to a plan of package traffic, and measures the answers.
//
//	plan ── run ──> target: a store, HTTP or gRPC
//	           │
//	           tally, which merges ── report, comparison ──> document
//
// In an open loop, calls are due at times that do not depend on the answers, and latency counts from when a call was
// due. So a stalled target does not receive fewer calls, and the calls that it delayed are not left out. How late the
// runner itself began its calls is measured separately and reported. In a closed loop, each user waits for an answer,
// pauses, and calls again.
package load
