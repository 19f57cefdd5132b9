// Package whatif holds recorded usage against limits that are proposed: who would have been refused, when, by which
// limit.
//
// Usage says how much was spent in an hour or day, and in its busiest minute, not when each request came. What a limit
// would have refused of it is therefore told as two bounds:
//
//   - At least: however the requests came, a limit admits no more over any stretch of time than its burst and what it
//     issues meanwhile. What was spent beyond that would have been refused. What was refused at the time is left aside.
//   - At most: the requests came as badly as the hour's total and its busiest minute permit: in bursts of two such
//     minutes back to back, or all in a row, onto a bucket that is as empty as what came before can have left it.
//     What was refused at the time counts as asked for, and may have come in the busiest minute.
//
// Where the two are equal, the answer is exact. Between them is what would have been refused if requests had come
// evenly but for the busiest minute: no bound, the figure to reckon with where nothing better is known. All are of each
// limit alone, in tokens.
package whatif
