// Package ledger turns readings of growing counters into windows: what was spent in an hour, a day, a month.
//
// # Which window an amount belongs to
//
// A bucket counts what it debits and what is returned to it, from its birth on; each birth has an ID of its own. A
// reading says how far the counters of one birth were, and when they last changed. For each counter of each birth, an
// [Account] keeps the highest reading of every minute. The amount of a minute is
//
//	the highest reading of that minute - the highest reading of all minutes before it (0 if there is none)
//
// or nothing if that is negative. It depends only on the set of readings, not on their order: a reading that comes
// twice or late gives the same windows as if it had come once and in time. The sum over all minutes is the highest
// reading of all, even if readings are missing. If a minute's last reading is missing, its amount is booked to the
// next minute that has a reading, until the missing one arrives. So windows are exact as soon as the last reading of
// each minute is there, and their sum always is.
//
// Hours, days and months are sums of minutes. A reading changes them by differences ([Account.Observe]), which the
// caller stores in the same transaction as the account.
//
// # Booking
//
// [Book] is the one loop that books readings, over the [Backend] of a store: it reads accounts, adds what is new,
// and applies accounts and windows in one step, again from the start if an account has changed meanwhile. What a bucket
// counts also counts for its resource, its namespace, the store, and all ancestors of its entity. Memory and disk share
// the back end over ordered keys, [Tx]. An account in it sees births in the order of their IDs; a [Source], which the
// other stores keep, does not depend on that.
//
// # Closing
//
// [Account.Close] forgets minutes that are over and births that have ended. A later reading of a closed minute is
// booked to the first open minute; one of a closed birth is ignored.
package ledger
