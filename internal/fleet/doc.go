// Package fleet lets processes that cannot talk to each other, and that come and go, divide something: all they share
// is a place where small records can be written conditionally.
//
// Each member writes its own report. One of them leads: it reads the reports and writes the grants, in one record for
// all. A [Protocol] determines what the reports and grants contain: package rates shares rates among workers, cells
// shares limits among installations of weir, and instances counts processes.
//
// # Never more than there is
//
// Shares are absolute. What a party may be using counts as outstanding until it has confirmed newer grants, or until
// its shares have expired. The [Ledger] hands out at most the pool less what is outstanding. So one share is lowered
// first, and another rises only once that is confirmed. A new party starts at nothing, and is given what is free.
//
// # Leaders
//
// The grants contain an epoch and the name of the leader. A member that sees them unchanged for two and a half to three
// and a half beats writes them with the next epoch, on condition that they are still as it read them: of two such
// members, one succeeds. For the same reason, a deposed leader cannot write any more. A new leader treats everything in
// the grants that it found as outstanding.
//
// If the registry has lost grants, as after a restore, their leader publishes the newest again, in a new epoch. Without
// it another member does, after as long a wait, in which all others confirm what they follow. Once a party confirms
// grants that the leader has not seen, it and all that have confirmed nothing as new count as using everything. Until
// each has confirmed newer grants or is removed, the grants mark them as lost, and no party uses more than it does,
// even if it is granted more.
//
// One gap remains: if only parties that are cut off from the registry follow the lost grants, or their reports are lost
// as well, nothing shows what they use, and it may be handed out again.
//
// # Time
//
// No clock is compared with another. A party is missing if its report has not changed for long enough by the leader's
// clock. After a time in which no reports could be read, nobody is missing.
package fleet
