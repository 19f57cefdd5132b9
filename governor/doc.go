// Package governor keeps DynamoDB clients within a budget of read and write capacity, so that a bulk load, a scan or a
// backfill does not starve other users of the tables.
//
//	g, err := governor.New(governor.Config{ReadUnits: 1500, WriteUnits: 500})
//	…
//	cfg.APIOptions = append(cfg.APIOptions, g.Middleware())
//	client := dynamodb.NewFromConfig(cfg) // limited, without any change to the code that uses it
//
// # The guarantee
//
// Between any two instants, the calls that a budget lets begin cost at most its rate times the time, plus one burst,
// plus the error of the estimates of the calls in flight. If costs are constant, estimates are exact after the first
// call of a kind. A call that costs more than the burst begins once it has been paid for.
//
// # How it works
//
// Before a call, the governor estimates its cost and debits it from every budget concerned: that of the index or table,
// and that of the account. The call begins when all of them allow it. Afterwards, the governor debits or gives back the
// difference to the consumption that DynamoDB reports. Estimates start from the request, and follow the actual cost of
// calls of that kind on that table.
//
// A failed condition is charged by the size of the item if the error contains it, and otherwise by estimate. Cancelled
// transactions and attempts without an answer are charged by estimate, replays of transactions as reads. Throttled
// attempts are not charged, but they are not retried any sooner. Operations that report no capacity pass at once,
// unchanged.
//
// # Throttling
//
// The governor looks at every attempt, including the retries of the SDK. When DynamoDB throttles a table or index, its
// budget falls to 70 % of what was just used, at most once a second, and rises again in constant steps. A hot key range
// does not lower the budget: it calls for other keys, not for fewer calls. Unprocessed items of batches count as
// throttling.
//
// # Fleets
//
// With a Coordinator, the rates are those of all processes together: see [Coordinator].
package governor
