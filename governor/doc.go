// Package governor keeps DynamoDB clients under a budget of read and write capacity, so that a bulk load, a scan or a
// backfill does not starve what else lives on the tables.
//
//	g, err := governor.New(governor.Config{ReadUnits: 1500, WriteUnits: 500})
//	…
//	cfg.APIOptions = append(cfg.APIOptions, g.Middleware())
//	client := dynamodb.NewFromConfig(cfg) // limited, without any change of the code that uses it
//
// # The guarantee
//
// Between any two instants a budget lets calls begin whose cost is at most its rate times the time, plus one burst,
// plus the error of the estimates of the calls that are in flight. Where costs are constant the estimates are exact
// after the first call of its kind. A call that costs more than the burst begins when it has been paid for.
//
// # How
//
// Before a call, what it will cost is estimated and debited of every budget concerned: that of the index or table, and
// that of the account. The call begins when all of them allow. After it, the difference to what DynamoDB says that it
// consumed is debited or given back. Estimates start from the request and follow what calls of that kind cost on that table.
//
// Failed conditions are charged by the size of the item if the error has it, else by estimate; cancelled transactions and
// attempts without an answer by estimate; throttled attempts not at all, but they do not come back sooner; the replay of a transaction as reads.
// Operations that report no capacity pass untouched and at once.
//
// # Throttling
//
// Every attempt is looked at, those that the SDK repeats too. When DynamoDB throttles a table or index, its budget falls
// to 70 % of what was just used, at most once a second, and rises again by a constant step. A hot key range does not
// lower it: that takes other keys, not fewer calls. Unprocessed items of batches count as throttling.
//
// # Fleets
//
// With a Coordinator the rates are those of all processes together: see package fleet.
package governor
