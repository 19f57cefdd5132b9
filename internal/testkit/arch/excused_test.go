package arch_test

// excused holds what exceeds a bound, with the reason. It only becomes shorter.
var excused = map[string]string{
	"fields of a struct: decision.go LimitStatus":                         "a flat list of parameters or figures",
	"fields of a struct: internal/api/explanation.go ExplainedLimit":      "a flat list of parameters or figures",
	"fields of a struct: internal/lab/cost/traffic.go Traffic":            "a flat list of parameters or figures",
	"fields of a struct: internal/lab/simulate/config.go Config":          "a flat list of parameters or figures",
	"files with methods of one type: store/dynamodb/internal/table Table": "still one type for several concerns",
}
