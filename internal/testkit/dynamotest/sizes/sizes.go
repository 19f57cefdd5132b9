// Package sizes has DynamoDB's bounds on requests, and the sizes of values as DynamoDB counts them.
package sizes

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// Invalid returns DynamoDB's error for an invalid request.
func Invalid(format string, args ...any) error {
	return &smithy.GenericAPIError{
		Code: "ValidationException", Message: fmt.Sprintf(format, args...), Fault: smithy.FaultClient,
	}
}

// DynamoDB's bounds on items and keys, in bytes.
const (
	MaxItem     = 400 << 10
	MaxHash     = 2048
	MaxRange    = 1024
	MaxKeyName  = 255
	MaxBatchGet = 16 << 20 // of a response; the rest is left unprocessed
)

// DynamoDB's other bounds on a request, in bytes unless stated otherwise.
const (
	maxExpression  = 4 << 10
	maxOperators   = 300 // and functions of an expression; the = of a SET counts, a parenthesis does not
	maxOperands    = 100 // of IN
	maxVariables   = 2 << 20
	maxAlias       = 255
	maxName        = 65_535
	maxNesting     = 32 // levels of lists and maps
	maxTransaction = 4 << 20
	maxBatchWrite  = 16 << 20
)

// expressions are those of one item of a request, with what they refer to.
type expressions struct {
	update, condition, projection, filter, key *string

	names  map[string]string
	values map[string]types.AttributeValue
	put    map[string]types.AttributeValue // the item itself
}

// CheckUpdate returns DynamoDB's error if the expressions of an update exceed its bounds on expressions.
func CheckUpdate(update, condition string, names map[string]string) error {
	e := expressions{names: names}
	if update != "" {
		e.update = &update
	}
	if condition != "" {
		e.condition = &condition
	}
	return e.check()
}

func (e expressions) check() error {
	for _, x := range []struct {
		kind string
		text *string
	}{
		{"UpdateExpression", e.update},
		{"ConditionExpression", e.condition},
		{"ProjectionExpression", e.projection},
		{"FilterExpression", e.filter},
		{"KeyConditionExpression", e.key},
	} {
		if err := checkExpression(x.kind, aws.ToString(x.text)); err != nil {
			return err
		}
	}
	size := 0
	for alias, name := range e.names {
		if len(alias) > maxAlias {
			return Invalid("ExpressionAttributeNames contains invalid key: its length is above %d", maxAlias)
		}
		if len(name) > maxName {
			return Invalid("Attribute name is too large, must be less than %d bytes", maxName+1)
		}
		size += len(alias) + len(name)
	}
	for alias, v := range e.values {
		if len(alias) > maxAlias {
			return Invalid("ExpressionAttributeValues contains invalid key: its length is above %d", maxAlias)
		}
		size += len(alias) + Value(v)
	}
	if size > maxVariables {
		return Invalid("The names and values of the expressions exceed %d bytes", maxVariables)
	}
	if err := checkItem(e.values); err != nil {
		return err
	}
	return checkItem(e.put)
}

// checkItem checks the names and the nesting of an item's attributes.
func checkItem(it map[string]types.AttributeValue) error {
	for name, v := range it {
		if len(name) > maxName {
			return Invalid("Attribute name is too large, must be less than %d bytes", maxName+1)
		}
		if depth(v) > maxNesting {
			return Invalid("Nesting Levels have exceeded supported limits")
		}
	}
	return nil
}

// depth returns the number of levels of a value: 1 for one that is neither a list nor a map.
func depth(v types.AttributeValue) int {
	most := 0
	switch v := v.(type) {
	case *types.AttributeValueMemberL:
		for _, e := range v.Value {
			most = max(most, depth(e))
		}
	case *types.AttributeValueMemberM:
		for _, e := range v.Value {
			most = max(most, depth(e))
		}
	}
	return most + 1
}

// checkExpression checks the size of an expression as it is sent, and the number of its operators and functions.
func checkExpression(kind, text string) error {
	if len(text) > maxExpression {
		return Invalid("Invalid %s: Expression size has exceeded the maximum allowed size; expression size: %d",
			kind, len(text))
	}
	if len(text) <= maxOperators { // an operator has at least a byte
		return nil
	}
	operators, operands := count(text)
	switch {
	case operators > maxOperators:
		return Invalid("Invalid %s: The expression contains too many operators; operator count: %d",
			kind, maxOperators+1)
	case operands > maxOperands:
		return Invalid("Invalid %s: The IN operator is provided with too many operands; number of operands: %d",
			kind, operands)
	}
	return nil
}

// operator matches operators and functions, and parts of expressions in which there are none.
var operator = regexp.MustCompile(
	`(?i)[#:]\w+|\bBETWEEN\b|\b(?:AND|OR|NOT)\b|\bIN\s*\([^)]*\)|\w+\s*\(|<>|<=|>=|[=<>+-]`,
)

// count returns the number of an expression's operators and functions, and the largest number of operands of an IN.
func count(text string) (operators, operands int) {
	for _, found := range operator.FindAllString(text, -1) {
		switch word := strings.ToUpper(found); {
		case word[0] == '#' || word[0] == ':':
			continue
		case word == "BETWEEN":
			operators-- // its AND is none
		case strings.HasPrefix(word, "IN") && strings.HasSuffix(word, ")"):
			operands = max(operands, strings.Count(word, ",")+1)
		}
		operators++
	}
	return operators, operands
}

// CheckRequest returns DynamoDB's error if the input of a call exceeds one of its bounds on requests, apart from those
// on the number of items and on keys, which a table checks.
func CheckRequest(in any) error {
	var all []expressions
	size, most := 0, maxTransaction
	switch in := in.(type) {
	case *dynamodb.UpdateItemInput:
		return expressions{
			update: in.UpdateExpression, condition: in.ConditionExpression,
			names: in.ExpressionAttributeNames, values: in.ExpressionAttributeValues,
		}.check()
	case *dynamodb.PutItemInput:
		all = []expressions{{
			condition: in.ConditionExpression,
			names:     in.ExpressionAttributeNames, values: in.ExpressionAttributeValues,
		}, {put: in.Item}}
	case *dynamodb.DeleteItemInput:
		all = []expressions{{
			condition: in.ConditionExpression,
			names:     in.ExpressionAttributeNames, values: in.ExpressionAttributeValues,
		}}
	case *dynamodb.GetItemInput:
		all = []expressions{{projection: in.ProjectionExpression, names: in.ExpressionAttributeNames}}
	case *dynamodb.QueryInput:
		all = []expressions{{
			key: in.KeyConditionExpression, filter: in.FilterExpression, projection: in.ProjectionExpression,
			names: in.ExpressionAttributeNames, values: in.ExpressionAttributeValues,
		}}
	case *dynamodb.BatchGetItemInput:
		for _, asked := range in.RequestItems {
			all = append(all, expressions{
				projection: asked.ProjectionExpression, names: asked.ExpressionAttributeNames,
			})
		}
	case *dynamodb.BatchWriteItemInput:
		most = maxBatchWrite
		for _, writes := range in.RequestItems {
			for _, w := range writes {
				if w.PutRequest != nil {
					all = append(all, expressions{put: w.PutRequest.Item})
					size += Item(w.PutRequest.Item)
				}
			}
		}
	case *dynamodb.TransactWriteItemsInput:
		for _, w := range in.TransactItems {
			x, n := ofTransaction(w)
			all = append(all, x...)
			size += n
		}
	}
	for _, e := range all {
		if err := e.check(); err != nil {
			return err
		}
	}
	if size > most {
		return Invalid("Transaction or batch request size has exceeded the maximum limit of %d bytes", most)
	}
	return nil
}

// ofTransaction returns the expressions of a transaction's item, and the size of what it writes.
func ofTransaction(w types.TransactWriteItem) (all []expressions, size int) {
	switch {
	case w.Put != nil:
		return []expressions{{
			condition: w.Put.ConditionExpression,
			names:     w.Put.ExpressionAttributeNames, values: w.Put.ExpressionAttributeValues,
		}, {put: w.Put.Item}}, Item(w.Put.Item)
	case w.Update != nil:
		return []expressions{{
			update: w.Update.UpdateExpression, condition: w.Update.ConditionExpression,
			names: w.Update.ExpressionAttributeNames, values: w.Update.ExpressionAttributeValues,
		}}, Item(w.Update.Key) + Item(w.Update.ExpressionAttributeValues)
	case w.Delete != nil:
		return []expressions{{
			condition: w.Delete.ConditionExpression,
			names:     w.Delete.ExpressionAttributeNames, values: w.Delete.ExpressionAttributeValues,
		}}, Item(w.Delete.Key)
	case w.ConditionCheck != nil:
		return []expressions{{
			condition: w.ConditionCheck.ConditionExpression,
			names:     w.ConditionCheck.ExpressionAttributeNames, values: w.ConditionCheck.ExpressionAttributeValues,
		}}, Item(w.ConditionCheck.Key)
	}
	return nil, 0
}
