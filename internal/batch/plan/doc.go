// Package plan decides what the next write to a bucket's item carries, and what its answer means for the callers whose
// jobs it carries. It computes with values only: it makes no calls, reads no clock and has no locks. Package dynamodb
// makes the writes; a simulation applies them to items of its own.
package plan
