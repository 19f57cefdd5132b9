package dynamodb

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"
)

// TestWrittenBody checks that the body of a write says the same as the SDK's form of it, whatever the keys, limits and
// values are.
func TestWrittenBody(t *testing.T) {
	t.Parallel()
	var e expressions
	rapid.Check(t, func(t *rapid.T) {
		u := new(update)
		u.op(addTo, attrWrites, 1)
		for range rapid.IntRange(0, 12).Draw(t, "clauses") {
			attr := rapid.SampledFrom([]string{attrAt, attrID, "L_rpm", "L_\"\\<é>\n\x01", "L_" + rapid.String().Draw(t, "name")}).Draw(t, "attribute")
			switch form := clause(rapid.IntRange(int(condAbsent), int(remove)).Draw(t, "form")); form {
			case condAbsent, condExists, remove:
				u.op(form, attr)
			case condBetween:
				u.op(form, attr, rapid.Int64().Draw(t, "low"), rapid.Int64().Draw(t, "high"))
			default:
				if rapid.Bool().Draw(t, "text") {
					u.opText(form, attr, rapid.String().Draw(t, "value"))
				} else {
					u.op(form, attr, rapid.Int64().Draw(t, "value"))
				}
			}
		}
		sh := &shard{s: &Store{cfg: Config{Table: rapid.String().Draw(t, "table")}}}
		sh.pk = primary{rapid.String().Draw(t, "hash key"), rapid.String().Draw(t, "range key")}
		w := written{sh, u, e.of(u)}
		body, ok := w.AppendBody([]byte("before"))
		if !ok {
			t.Fatal("it has no body")
		}
		var got any
		if err := json.Unmarshal(body[len("before"):], &got); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		in := w.Input()
		names := map[string]any{}
		for name, attr := range in.ExpressionAttributeNames {
			names[name] = attr
		}
		want := map[string]any{
			"TableName": *in.TableName, "Key": plainValues(in.Key),
			"ConditionExpression": *in.ConditionExpression, "UpdateExpression": *in.UpdateExpression,
			"ExpressionAttributeNames": names, "ExpressionAttributeValues": plainValues(in.ExpressionAttributeValues),
			"ReturnValues": string(in.ReturnValues), "ReturnValuesOnConditionCheckFailure": string(in.ReturnValuesOnConditionCheckFailure),
		}
		if !reflect.DeepEqual(got, any(want)) {
			t.Fatalf("body %s\nwant %v", body, want)
		}
	})
}

func plainValues(m map[string]types.AttributeValue) map[string]any {
	plain := map[string]any{}
	for name, v := range m {
		switch v := v.(type) {
		case *types.AttributeValueMemberN:
			plain[name] = map[string]any{"N": v.Value}
		case *types.AttributeValueMemberS:
			plain[name] = map[string]any{"S": v.Value}
		}
	}
	return plain
}

// TestWrittenNoText checks that invalid UTF-8 has no body, and is left to the SDK to refuse.
func TestWrittenNoText(t *testing.T) {
	t.Parallel()
	const no = "a\xff"
	for name, of := range map[string]func(u *update) primary{
		"key":       func(u *update) primary { u.op(addTo, attrWrites, 1); return primary{no, "b"} },
		"attribute": func(u *update) primary { u.op(addTo, no, 1); return primary{"a", "b"} },
		"value":     func(u *update) primary { u.opText(setTo, attrSet, no); return primary{"a", "b"} },
	} {
		u := new(update)
		sh := &shard{s: &Store{cfg: Config{Table: "t"}}, pk: of(u)}
		w := written{sh, u, u.render()}
		if _, ok := w.AppendBody(nil); ok {
			t.Errorf("%s: it has a body", name)
		}
	}
}
