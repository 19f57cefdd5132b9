// Package cells shares limits among cells: complete, independent installations of weir, each with a store of its own,
// over which a tenant's traffic is spread. A limit is then the limit of all cells together.
//
// The cells meet in a registry: the catalog of one store that all of them can reach, and that no decision asks.
//
//	agent       each beat: seq, the version that its cell goes by, what was offered  ──►  registry: instance
//	controller  instances  ──►  registry: grants, one record: epoch, seq, each cell's share of each namespace
//	agent       grants  ──►  the cell's own store: shares
//	decider     shares  ──►  its limits, scaled
//
// Every process of a cell runs an [Agent], and any of them may be the controller.
//
// # Shares
//
// A share is a number of parts of [Whole], per namespace; [Default] stands for those that have none of their own. A
// decider scales a limit's amount and burst by it, rounded down, so the parts of all cells are never more than the limit.
//
// # Modes
//
// Strict: a share that is lowered counts as it was until the cell has confirmed that it goes by less, and only what is
// not counted is handed out. So the shares that cells may be going by are never more than the whole, whatever is
// lost, late or cut off. A cell that is cut off keeps its share, and the others wait for it, until it is drained.
//
// Available: shares are published as they should be, at once. Until all cells go by them the sum may be more than the
// whole: by n cells that become m, at most 1 + (m-n)/m. A cell that has not been heard of for [Config.Expiry] is left
// out; should it be cut off rather than dead, what it holds comes on top.
//
// # Confirming
//
// What a cell goes by is a record in its own store, where all its deciders read it. A decider goes by what it read for
// at most [Config.Valid] and then as if the store did not answer, so that what is replaced is not in use any more after
// that, and the time that a decision takes: one that comes later does not count. Then the replacement is confirmed. No
// decider has to be known for it. The record's epoch is part of the epoch of every debit, so that who goes by an old share
// finds out at a bucket that was debited by the new one; it grows with each write, also when the store has lost some.
//
// # Installations
//
// A cell is one installation, with one store, which has a name that its agents tell with each beat. The grants say which
// is the cell; others that use its name have no share, confirm nothing and offer nothing. When the one is missing, another
// takes its place.
//
// # What is admitted
//
// Agents tell with their beats what they have admitted of the limits of which most is used, as how long the limit takes to
// issue it. The controller fills one bucket with it for each, as large as the limit's burst, and what runs over was more than
// the limit allows.
//
// # Time
//
// No clock is compared with another. An instance is missing when its record has not changed for so long by the clock of
// who looks. A controller is missing when the grants have not changed for three to four beats.
//
// # Controllers
//
// Whoever writes the grants leads: on condition that they are still what it read, so of two that believe to lead, one
// fails. A new one raises the epoch, takes all that the grants say as outstanding, and for an expiry changes nothing: it
// does not know yet who is there.
//
// # When the registry cannot be reached
//
// Every cell goes on with the share that it has, for as long as it takes, also over a restart: its own store has it.
package cells
