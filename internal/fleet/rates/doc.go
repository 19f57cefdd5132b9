// Package rates shares rates among the workers of a fleet.
//
// Each worker reports what it wants of each budget, what it has used, and which grants it follows; the leader divides.
//
//	worker      report: seq, want, used, ack  ──►  worker/ID
//	leader      worker/*  ──►  grants: epoch, seq, for each worker a share and a safe share
//	worker      grants  ──►  its share, until the lease ends; then its safe share
//
// # Time
//
// Grants answer a report: the worker counts the lease from before it sent that report, the leader from after it read
// it, each on its own monotonic clock. So the leader's view of a lease always outlasts the worker's. A worker whose
// report has not changed for the length of a lease is missing; its safe share stays reserved for it until it is
// forgotten. A new leader treats everything in the grants that it found as outstanding for a whole lease.
//
// # When records cannot be reached
//
// When its lease ends, a worker falls back to its safe share, the limit divided by twice the number of known workers,
// and stays there until it reads grants again. All safe shares together are half of the limit.
package rates
