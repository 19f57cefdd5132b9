// Package usage turns readings of growing counters into windows: what was spent in an hour, a day, a month.
//
// # Which window an amount belongs to
//
// A bucket counts what it debits and what it is given back, from its birth on; a birth has an id of its own. A reading
// says how far the counters of one birth were, and when they last changed. An [Account] keeps, of each counter of each
// birth, the highest reading of every minute. What belongs to a minute is
//
//	the highest reading of that minute - the highest reading of all minutes before it (0 if there is none)
//
// or nothing if that is negative. That is a function of the set of readings, not of their order: a reading that comes
// twice or late gives the windows that it would have given in time. Summed over all minutes it is the highest reading
// of all, whatever is missing; where a minute's last reading is missing, what it would have told is booked to the next
// minute that has one, until it comes. So windows are exact as soon as the last reading of each minute is there, and
// their sum always is.
//
// Hours, days and months are sums of minutes. A reading changes them by differences ([Account.Observe]), which
// whoever stores windows applies in one step with the account.
//
// # Closing
//
// [Account.Close] forgets minutes that are over and births that have ended. What a reading still brings of a closed
// minute is booked to the first that is open; of a closed birth it brings nothing.
package usage
