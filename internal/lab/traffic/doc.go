// Package traffic describes traffic: which entities request what, how often, and under which limits.
//
//	scenario + settings ── plan ──> when (shape), who and what (draw)
//
// The n-th call of an open loop is a function of the seed and n alone: however many callers or workers there are,
// together they make the same calls.
package traffic
