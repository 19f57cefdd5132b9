package faultproxy

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
)

type object = map[string]json.RawMessage

const (
	shapes   = "com.amazonaws.dynamodb.v20120810#"
	tableARN = "arn:aws:dynamodb:us-east-1:000000000000:table/"
)

// refusal returns the response sent instead of the engine's.
func refusal(kind Kind, req *request) (status int, body []byte) {
	status = http.StatusBadRequest
	reasons := []map[string]string{{
		"reason": "TableWriteKeyRangeThroughputExceeded", "resource": tableARN + req.table(),
	}}
	var answer map[string]any
	switch kind {
	case InternalError:
		status = http.StatusInternalServerError
		answer = map[string]any{"__type": shapes + "InternalServerError", "message": "Internal server error"}
	case Throttling:
		answer = map[string]any{
			"__type": "com.amazon.coral.availability#ThrottlingException", "message": "Rate exceeded",
			"throttlingReasons": reasons,
		}
	case Throughput:
		answer = map[string]any{
			"__type":            shapes + "ProvisionedThroughputExceededException",
			"message":           "The level of configured provisioned throughput for the table was exceeded.",
			"ThrottlingReasons": reasons,
		}
	default:
		return status, req.body // set by conflicts
	}
	return status, encode(answer)
}

func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return body
}

// table returns a table that a request names.
func (r *request) table() string {
	var in struct {
		TableName    string
		RequestItems object
	}
	_ = json.Unmarshal(r.body, &in) // if this fails, it names none
	for _, name := range slices.Sorted(maps.Keys(in.RequestItems)) {
		return name
	}
	return in.TableName
}

// conflicts replaces the body with a conflict error, if the operation can have one.
func (r *request) conflicts(rng *rand.Rand) bool {
	switch r.op {
	case "PutItem", "UpdateItem", "DeleteItem":
		r.body = encode(map[string]any{
			"__type": shapes + "TransactionConflictException", "message": "Transaction is ongoing for the item",
		})
		return true
	case "TransactWriteItems":
	default:
		return false
	}
	var in struct{ TransactItems []json.RawMessage }
	if json.Unmarshal(r.body, &in) != nil || len(in.TransactItems) == 0 {
		return false
	}
	reasons := make([]map[string]string, len(in.TransactItems))
	for i := range reasons {
		reasons[i] = map[string]string{"Code": "None"}
	}
	reasons[rng.IntN(len(reasons))] = map[string]string{
		"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item",
	}
	r.body = encode(map[string]any{
		"__type":              shapes + "TransactionCanceledException",
		"Message":             "Transaction cancelled, please refer cancellation reasons for specific reasons",
		"CancellationReasons": reasons,
	})
	return true
}

// withhold removes some items of a batch from the request, at most all but one, and returns them as unprocessed.
func (r *request) withhold(rng *rand.Rand) bool {
	var in, tables object
	if r.op != "BatchGetItem" || json.Unmarshal(r.body, &in) != nil ||
		json.Unmarshal(in["RequestItems"], &tables) != nil {
		return false
	}
	type element struct {
		table string
		raw   json.RawMessage
	}
	var all []element
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		for _, raw := range keysOf(tables[name]) {
			all = append(all, element{name, raw})
		}
	}
	if len(all) < 2 {
		return false
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	group := func(some []element) object {
		lists := make(map[string][]json.RawMessage)
		for _, e := range some {
			lists[e.table] = append(lists[e.table], e.raw)
		}
		out := make(object)
		for name, of := range lists {
			out[name] = withKeys(tables[name], of)
		}
		return out
	}
	n := 1 + rng.IntN(len(all)-1)
	kept, passed := group(all[:n]), group(all[n:])
	in["RequestItems"] = encode(passed)
	r.body = encode(in)
	r.merge = func(answer []byte) ([]byte, error) {
		var out object
		if err := json.Unmarshal(answer, &out); err != nil {
			return nil, err
		}
		out["UnprocessedKeys"] = encode(kept)
		return encode(out), nil
	}
	return true
}

// keysOf returns the keys of a table's part of a request.
func keysOf(table json.RawMessage) []json.RawMessage {
	var in struct{ Keys []json.RawMessage }
	_ = json.Unmarshal(table, &in) // if this fails, the engine rejects it
	return in.Keys
}

// withKeys returns a table's part of a request with other keys.
func withKeys(table json.RawMessage, keys []json.RawMessage) json.RawMessage {
	var fields object
	_ = json.Unmarshal(table, &fields)
	fields["Keys"] = encode(keys)
	return encode(fields)
}
