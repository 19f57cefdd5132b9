// Package cost estimates what decisions on a DynamoDB table cost: calls, read and write units, and money, from a
// description of the traffic or from a recorded run. It shows its formulas.
package cost

// Operation is an operation on a table, with its cost.
type Operation struct {
	Name  string  `json:"name"`
	Calls int     `json:"calls"`
	Read  float64 `json:"read_units"`
	Write float64 `json:"write_units"`
}

// Operations lists what the driver does, with its cost. TestCost of store/dynamodb proves the figures: it runs each
// operation and compares.
var Operations = []Operation{
	{"acquire, warm", 1, 0, 1},
	{"acquire, refilled", 1, 0, 1},
	{"acquire, another process's bucket", 1, 0, 1},
	{"acquire, brand-new bucket", 1, 0, 2},
	{"refused, first time", 1, 0, 1},
	{"refused again", 0, 0, 0},
	{"cascade, two levels", 2, 0, 2},
	{"cascade, the child refuses", 1, 0, 1},
	{"cascade, the parent refuses", 3, 0, 3},
	{"wrong guess", 2, 0, 2},
	{"adjust", 1, 0, 1},
	{"rollback", 1, 0, 1},
	{"return of a lease held elsewhere", 2, 0, 2},
	{"config miss, two records", 1, 3, 0},
	{"available", 1, 1, 0},
	{"forget", 1, 0, 2},
}

// Of returns the cost of an operation. It panics if there is none of that name.
func Of(name string) Operation {
	for _, op := range Operations {
		if op.Name == name {
			return op
		}
	}
	panic("cost: no operation " + name)
}
