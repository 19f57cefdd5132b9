// Package fleet divides budgets among the workers of a fleet that cannot talk to each other: processes that come and
// go, and share only a place where small records can be written conditionally.
//
// Each worker writes its own report: what it wants, what it used, and which grants it follows. One of the workers
// leads: it reads the reports and writes the grants, in one record for all.
//
//	worker      report seq, want, used, ack  ──►  worker/ID
//	leader      worker/*  ──►  grants: epoch, seq, for each worker a share and a safe share
//	worker      grants  ──►  its share, until the lease ends; then its safe share
//
// # Never more than the limit
//
// Shares are absolute. What a worker may be using counts as outstanding until the worker has confirmed newer grants, or
// until its lease ends. The leader hands out at most the limit less what is outstanding. So one share is lowered first,
// and another rises only once that is confirmed. A new worker starts at nothing, and is given what is free.
//
// # Time
//
// No clock is compared with another. A grant answers a report: the worker counts the lease from before it sent that
// report, the leader from after it read it, each on its own monotonic clock. So the leader's view of a lease always
// outlasts the worker's. A worker is missing if its report has not changed for the length of a lease, as seen by the
// leader; its safe share then stays reserved for it until it is forgotten.
//
// # Leaders
//
// The grants contain an epoch and the name of the leader. A worker that sees them unchanged for two and a half to three
// and a half refreshes writes them with the next epoch, on condition that they are still as it read them: of two such
// workers, one succeeds. For the same reason, a deposed leader cannot write any more. A new leader treats everything in
// the grants that it found as outstanding for a whole lease.
//
// # When records cannot be reached
//
// When its lease ends, a worker falls back to its safe share, the limit divided by twice the number of known workers,
// and stays there until it reads grants again. All safe shares together are half of the limit.
package fleet
