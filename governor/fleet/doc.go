// Package fleet divides budgets among the workers of a fleet that cannot talk to each other: processes that come and
// go, with nothing in common but a place where small records can be written on condition.
//
// Each worker writes a report of its own: what it wants, what it used, which grants it goes by. One of them leads: it
// reads the reports and writes the grants, one record for all.
//
//	worker      report seq, want, used, ack  ──►  worker/ID
//	leader      worker/*  ──►  grants: epoch, seq, for each worker a share and a safe share
//	worker      grants  ──►  its share, until the lease is over; then its safe share
//
// # Never more than the limit
//
// Shares are absolute. What a worker may be going by counts as outstanding until the worker has said that it goes by
// newer grants, or until its lease is over; the leader hands out at most the limit less what is outstanding. So a
// share is first lowered, and only when that has been confirmed does another rise. A newcomer starts at nothing and
// is given what is free.
//
// # Time
//
// No clock is compared with another. A grant answers a report: the worker counts the lease from before it sent that
// report, the leader from after it read it, each on its own monotonic clock. So the leader's idea of a lease always
// outlasts the worker's. A worker is missing when its report has not changed for a lease, as seen by the leader; its
// safe share then stays reserved for it until it is forgotten.
//
// # Leaders
//
// The grants hold an epoch and who leads. Whoever sees them unchanged for two and a half to three and a half refreshes
// writes them with the next epoch, on condition that they are still what it read: of two, one succeeds. A leader that
// was deposed cannot write any more, for the same reason. A new leader takes everything in the grants it found as
// outstanding for a whole lease.
//
// # When records cannot be reached
//
// Once its lease is over a worker falls to its safe share, the limit over twice the known workers, and stays there
// until it reads grants again. All safe shares together are half of the limit.
package fleet
