package wire

import (
	"strconv"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// appendUpdate appends an UpdateItem's body, and reports whether it can be made here: it can if it has nothing but what a
// bucket's write has.
func appendUpdate(b []byte, in *dynamodb.UpdateItemInput) ([]byte, bool) {
	if in == nil || in.TableName == nil || in.Key == nil ||
		in.AttributeUpdates != nil || in.ConditionalOperator != "" || in.Expected != nil ||
		in.ReturnConsumedCapacity != "" || in.ReturnItemCollectionMetrics != "" {
		return b, false
	}
	ok := true
	text := func(name string, value *string) {
		if value != nil {
			b = append(append(b, name...), ':')
			b, ok = AppendString(b, *value, ok)
			b = append(b, ',')
		}
	}
	values := func(name string, m map[string]types.AttributeValue) {
		if m != nil {
			b = append(append(b, name...), ':')
			b, ok = appendValues(b, m, ok)
			b = append(b, ',')
		}
	}
	b = append(b, '{')
	text(`"TableName"`, in.TableName)
	values(`"Key"`, in.Key)
	text(`"ConditionExpression"`, in.ConditionExpression)
	text(`"UpdateExpression"`, in.UpdateExpression)
	values(`"ExpressionAttributeValues"`, in.ExpressionAttributeValues)
	if in.ExpressionAttributeNames != nil {
		b = append(b, `"ExpressionAttributeNames":`...)
		b, ok = appendNames(b, in.ExpressionAttributeNames, ok)
		b = append(b, ',')
	}
	if v := string(in.ReturnValues); v != "" {
		text(`"ReturnValues"`, &v)
	}
	if v := string(in.ReturnValuesOnConditionCheckFailure); v != "" {
		text(`"ReturnValuesOnConditionCheckFailure"`, &v)
	}
	b[len(b)-1] = '}' // in place of a comma: there is at least a table name
	return b, ok
}

// appendBatch appends a BatchGetItem's body, and reports whether it can be made here: it can if it reads whole items.
func appendBatch(b []byte, in *dynamodb.BatchGetItemInput) ([]byte, bool) {
	if in == nil || len(in.RequestItems) == 0 || in.ReturnConsumedCapacity != "" {
		return b, false
	}
	ok := true
	b = append(b, `{"RequestItems":`...)
	open := byte('{')
	for table, of := range in.RequestItems {
		whole := of.AttributesToGet == nil && of.ExpressionAttributeNames == nil && of.ProjectionExpression == nil
		if len(of.Keys) == 0 || !whole {
			return b, false
		}
		b, ok = AppendString(append(b, open), table, ok)
		b = append(b, `:{"Keys":`...)
		next := byte('[')
		for _, key := range of.Keys {
			if key == nil {
				return b, false
			}
			b, ok = appendValues(append(b, next), key, ok)
			next = ','
		}
		b = append(b, ']')
		if of.ConsistentRead != nil {
			b = strconv.AppendBool(append(b, `,"ConsistentRead":`...), *of.ConsistentRead)
		}
		b = append(b, '}')
		open = ','
	}
	return append(b, "}}"...), ok
}

func appendNames(b []byte, m map[string]string, ok bool) ([]byte, bool) {
	open := byte('{')
	for name, value := range m {
		b, ok = AppendString(append(b, open), name, ok)
		b, ok = AppendString(append(b, ':'), value, ok)
		open = ','
	}
	if len(m) == 0 {
		b = append(b, '{')
	}
	return append(b, '}'), ok
}

func appendValues(b []byte, m map[string]types.AttributeValue, ok bool) ([]byte, bool) {
	open := byte('{')
	for name, value := range m {
		b, ok = AppendString(append(b, open), name, ok)
		switch v := value.(type) {
		case *types.AttributeValueMemberN:
			b, ok = AppendString(append(b, `:{"N":`...), v.Value, ok)
		case *types.AttributeValueMemberS:
			b, ok = AppendString(append(b, `:{"S":`...), v.Value, ok)
		default:
			return b, false
		}
		b = append(b, '}')
		open = ','
	}
	if len(m) == 0 {
		b = append(b, '{')
	}
	return append(b, '}'), ok
}

// AppendString appends s as a JSON string. It returns ok, or false if s is not valid UTF-8.
func AppendString(b []byte, s string, ok bool) ([]byte, bool) {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	start, ascii := 0, true
	for i := range len(s) {
		c := s[i]
		if c >= utf8.RuneSelf {
			ascii = false
		}
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		if start = i + 1; c < ' ' {
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		} else {
			b = append(b, '\\', c)
		}
	}
	return append(append(b, s[start:]...), '"'), ok && (ascii || utf8.ValidString(s))
}
