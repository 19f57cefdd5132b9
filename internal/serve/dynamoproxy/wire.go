package dynamoproxy

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// operation makes the SDK's types of an operation that reports what it consumed. Its fields have the names that
// DynamoDB's JSON has.
type operation struct {
	input, output func() any
}

// operations are those that the governor limits. All others pass.
var operations = map[string]operation{
	"GetItem":               of[dynamodb.GetItemInput, dynamodb.GetItemOutput](),
	"BatchGetItem":          of[dynamodb.BatchGetItemInput, dynamodb.BatchGetItemOutput](),
	"Query":                 of[dynamodb.QueryInput, dynamodb.QueryOutput](),
	"Scan":                  of[dynamodb.ScanInput, dynamodb.ScanOutput](),
	"TransactGetItems":      of[dynamodb.TransactGetItemsInput, dynamodb.TransactGetItemsOutput](),
	"PutItem":               of[dynamodb.PutItemInput, dynamodb.PutItemOutput](),
	"UpdateItem":            of[dynamodb.UpdateItemInput, dynamodb.UpdateItemOutput](),
	"DeleteItem":            of[dynamodb.DeleteItemInput, dynamodb.DeleteItemOutput](),
	"BatchWriteItem":        of[dynamodb.BatchWriteItemInput, dynamodb.BatchWriteItemOutput](),
	"TransactWriteItems":    of[dynamodb.TransactWriteItemsInput, dynamodb.TransactWriteItemsOutput](),
	"ExecuteStatement":      of[dynamodb.ExecuteStatementInput, dynamodb.ExecuteStatementOutput](),
	"BatchExecuteStatement": of[dynamodb.BatchExecuteStatementInput, dynamodb.BatchExecuteStatementOutput](),
	"ExecuteTransaction":    of[dynamodb.ExecuteTransactionInput, dynamodb.ExecuteTransactionOutput](),
}

func of[In, Out any]() operation {
	return operation{func() any { return new(In) }, func() any { return new(Out) }}
}

// requests decodes requests, in which the sizes of items count; answers decodes answers, in which they do not.
var (
	requests = json.WithUnmarshalers(json.UnmarshalFromFunc(readValue))
	answers  = json.WithUnmarshalers(json.UnmarshalFromFunc(
		func(d *jsontext.Decoder, _ *types.AttributeValue) error { return d.SkipValue() },
	))
)

// readValue reads an attribute value, such as {"S": "text"}. A type that is not known has the size of a BOOL.
func readValue(d *jsontext.Decoder, v *types.AttributeValue) error {
	if d.PeekKind() != '{' {
		return fmt.Errorf("an attribute value is not an object but %v", d.PeekKind())
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := readTyped(d, name.String(), v); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func readTyped(d *jsontext.Decoder, name string, v *types.AttributeValue) error {
	var to any
	switch name {
	case "S":
		m := new(types.AttributeValueMemberS)
		*v, to = m, &m.Value
	case "N":
		m := new(types.AttributeValueMemberN)
		*v, to = m, &m.Value
	case "B":
		m := new(types.AttributeValueMemberB)
		*v, to = m, &m.Value
	case "SS":
		m := new(types.AttributeValueMemberSS)
		*v, to = m, &m.Value
	case "NS":
		m := new(types.AttributeValueMemberNS)
		*v, to = m, &m.Value
	case "BS":
		m := new(types.AttributeValueMemberBS)
		*v, to = m, &m.Value
	case "L":
		m := new(types.AttributeValueMemberL)
		*v, to = m, &m.Value
	case "M":
		m := new(types.AttributeValueMemberM)
		*v, to = m, &m.Value
	default:
		return d.SkipValue()
	}
	return json.UnmarshalDecode(d, to)
}

// The errors from which the governor learns more than their names.
var known = map[string]func() error{
	"ConditionalCheckFailedException":        func() error { return new(types.ConditionalCheckFailedException) },
	"ProvisionedThroughputExceededException": func() error { return new(types.ProvisionedThroughputExceededException) },
	"RequestLimitExceeded":                   func() error { return new(types.RequestLimitExceeded) },
	"ThrottlingException":                    func() error { return new(types.ThrottlingException) },
	"TransactionCanceledException":           func() error { return new(types.TransactionCanceledException) },
	"TransactionConflictException":           func() error { return new(types.TransactionConflictException) },
}

// readError returns the error in an answer as the SDK does.
func readError(body []byte) error {
	var name struct {
		Type string `json:"__type"`
	}
	_ = json.Unmarshal(body, &name) // an answer of something between here and DynamoDB may not be JSON
	code := name.Type[bytes.LastIndexByte([]byte(name.Type), '#')+1:]
	if of, ok := known[code]; ok {
		err := of()
		if json.Unmarshal(body, err, requests, json.MatchCaseInsensitiveNames(true)) == nil {
			return err
		}
	}
	return &smithy.GenericAPIError{Code: code}
}

const (
	reportMember   = "ReturnConsumedCapacity"
	consumedMember = "ConsumedCapacity"
)

// withReport returns a request that has its consumption reported in a level of detail.
func withReport(body []byte, level types.ReturnConsumedCapacity) ([]byte, error) {
	out, err := without(body, reportMember)
	if err != nil {
		return nil, err
	}
	if out = out[:len(out)-1]; len(out) > 1 {
		out = append(out, ',')
	}
	return append(out, `"`+reportMember+`":"`+string(level)+`"}`...), nil
}

// withoutReport returns an answer with the consumption in the level that was requested, not in the one that it has.
func withoutReport(body []byte, requested types.ReturnConsumedCapacity) ([]byte, error) {
	if requested != types.ReturnConsumedCapacityTotal {
		return without(body, consumedMember)
	}
	return edit(body, func(name string, v jsontext.Value) (jsontext.Value, error) {
		switch {
		case name != consumedMember:
			return v, nil
		case v.Kind() == '{':
			return total(v)
		}
		var all []jsontext.Value
		if err := json.Unmarshal(v, &all); err != nil {
			return nil, err
		}
		for i := range all {
			var err error
			if all[i], err = total(all[i]); err != nil {
				return nil, err
			}
		}
		return json.Marshal(all)
	})
}

// total removes from the consumption of a table what only INDEXES reports.
func total(v jsontext.Value) (jsontext.Value, error) {
	return without(v, "Table", "LocalSecondaryIndexes", "GlobalSecondaryIndexes", "VectorIndexes")
}

func without(object []byte, members ...string) ([]byte, error) {
	return edit(object, func(name string, v jsontext.Value) (jsontext.Value, error) {
		if slices.Contains(members, name) {
			return nil, nil
		}
		return v, nil
	})
}

// edit returns an object with the values of its members changed, and without those that become nil. The order and all
// other values stay as they were written.
func edit(object []byte, change func(name string, v jsontext.Value) (jsontext.Value, error)) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(object))
	if kind := d.PeekKind(); kind != '{' {
		return nil, fmt.Errorf("not an object but %v", kind)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(object)+64), '{')
	for d.PeekKind() != '}' {
		token, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String()
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		if v, err = change(name, v); err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		if out, err = jsontext.AppendQuote(out, name); err != nil {
			return nil, err
		}
		out = append(append(out, ':'), v...)
	}
	return append(out, '}'), nil
}
