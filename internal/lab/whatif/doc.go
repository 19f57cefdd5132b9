// Package whatif checks recorded usage against proposed limits: who would have been refused, when, and by which limit.
//
// Usage shows how much was spent in an hour or day, and in its busiest minute, not when each request came. What a
// limit would have refused is therefore given as two bounds:
//
//   - At least: however the requests came, a limit admits no more over any period than its burst and what it issues
//     meanwhile. What was spent beyond that would have been refused. What was refused at the time is not counted.
//   - At most: the requests came in the worst way that the hour's total and its busiest minute permit: in bursts of two
//     such minutes back to back, or all in a row, on a bucket that is as empty as the earlier windows can have left it.
//     What was refused at the time counts as asked for, and may have come in the busiest minute.
//
// If the two are equal, the answer is exact. Between them is what would have been refused if requests had come evenly
// except in the busiest minute. It is not a bound, but the figure to use if nothing better is known. All figures are
// for each limit alone, in tokens.
package whatif
