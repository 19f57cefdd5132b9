// Package cells shares limits among cells: complete, independent installations of weir, each with its own store, over
// which a tenant's traffic is spread. A limit is then the limit of all cells together.
//
// The cells meet in a registry: the catalog of one store that all of them can reach, and on which no decision depends.
//
//	agent       each beat: seq, the version in use in its cell, the load offered  ──►  registry: instance
//	controller  instances  ──►  registry: grants, one record: epoch, seq, each cell's share of each namespace
//	agent       grants  ──►  the cell's own store: shares
//	decider     shares  ──►  its limits, scaled
//
// Every process of a cell runs an [Agent], and any of them may be the controller.
//
// # Shares
//
// A share is a number of parts of [Whole], per namespace; [Default] stands for the namespaces without shares of their
// own. A decider scales a limit's amount and burst by it, rounded down, so the parts of all cells never exceed the
// limit.
//
// # Modes
//
// Strict: a lowered share counts at its old value until the cell has confirmed the new one, and only what is not
// counted is handed out. So the shares that may be in use never exceed the whole, whatever is lost, late or cut off. A
// cell that is cut off keeps its share, and the others wait for it until it is drained.
//
// Available: new shares are published at once. Until all cells use them, the sum may exceed the whole: if n cells
// become m, it is at most 1 + (m-n)/m. A cell that has not been heard of for [Config.Expiry] is left out; if it is cut
// off rather than dead, its share comes on top.
//
// # Confirmation
//
// The share in use in a cell is a record in its own store, which all its deciders read. A decider uses what it read for
// at most [Config.Valid], and after that behaves as if the store did not answer. So a replaced share is no longer in
// use after Valid plus the time that a decision takes; a decision that takes longer does not count. Then the
// replacement is confirmed, without a list of the deciders. The record's epoch is part of the epoch of every
// debit, so a decider with an old share finds out at any bucket that was debited under the new one. The epoch grows
// with each write, even if the store has lost writes.
//
// # Installations
//
// A cell is one installation with one store. The store has a name, which the cell's agents report with each beat. The
// grants name which installation is the cell; others that use its name have no share, confirm nothing and offer
// nothing. If that installation is missing, another takes its place.
//
// # What is admitted
//
// With their beats, agents report what they have admitted of the most used limits, as the time that the limit takes to
// issue as much. For each such limit the controller fills one bucket with these reports, as large as the limit's burst;
// any overflow was more than the limit allows.
//
// # Time
//
// An instance is missing if its record has not changed for the expiry, by the reader's clock. See package fleet.
//
// # Controllers
//
// The process that writes the grants leads: see package fleet. A new leader treats everything in the grants as
// outstanding, and changes nothing for one expiry, because it has not yet seen which instances are alive.
//
// # When the registry cannot be reached
//
// Every cell continues with the share that it has, for as long as necessary and even after a restart: the share is in
// its own store.
package cells
