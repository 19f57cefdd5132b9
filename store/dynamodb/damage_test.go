package dynamodb_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestDamaged checks that an invalid edit of a bucket by hand causes an error that names table, key and attribute.
// Nothing is spent, and other buckets are unaffected.
func TestDamaged(t *testing.T) {
	t.Parallel()
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	number := func(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
	for _, tt := range []struct {
		attr  string
		value types.AttributeValue
	}{
		{"L_rpm", text("many")},
		{"L_rpm", number("99999999999.5")},
		{"L_rpm", &types.AttributeValueMemberNULL{Value: true}},
		{"D_rpm", text("")},
		{"R_rpm", &types.AttributeValueMemberL{}},
		{"P_rpm", text("-10/10/60s")},
		{"P_rpm", text("10/10/60")},
		{"P_rpm", text("10/0.5/60s")},
		{"P_rpm", text("10/10/0s")},
		{"P_rpm", text("10/10/fortnight@UTC")}, // of a later version
		{"P_rpm", text("99999999999999999999/1/60s")},
		{"P_rpm", number("10")},
		{"P_rpm", nil},
		{"sc", number("3")},
		{"sc", number("-3")},
		{"sc", number("128")},
		{"sc", text("2")},
		{"ttl", text("never")},
		{"id", text("x")},
		{"id", number("-5")},
		{"e", number("-1")},
		{"s", number("1")},
		{"oc", number("-1")},
		{"wc", number("0.1")},
	} {
		st := newStage(t)
		rpm, alice := per("rpm", 10, time.Minute, 10), bkt("alice")
		seen, other := st.open(noGuard), st.open(noGuard)
		st.want(seen, true, of(alice, rpm, 1))
		it := st.item(alice)
		it["R_rpm"] = number("0")
		it[tt.attr] = tt.value
		if tt.value == nil {
			delete(it, tt.attr)
		}
		if _, err := st.fake.PutItem(t.Context(), &sdk.PutItemInput{TableName: new(stageTable), Item: it}); err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]*dynamodb.Store{"one that knows it": seen, "another": other} {
			out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(alice, rpm, 1), of(bkt("bob"), rpm, 1)}})
			s.Flush()
			if tt.attr == "P_rpm" && name == "another" && tt.value == nil && err == nil {
				continue // a store that knows nothing overwrites it
			}
			var typed *store.Error
			if !errors.As(err, &typed) || out.Allowed {
				t.Errorf("%s %v, %s: %+v, %v", tt.attr, tt.value, name, out, err)
				continue
			}
			for _, word := range []string{stageTable, "alice", tt.attr} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: does not name %s: %v", tt.attr, word, err)
				}
			}
			if typed.Hint == "" {
				t.Errorf("%s: no hint: %v", tt.attr, err)
			}
			if n := st.outstanding(bkt("bob"), "rpm"); n != 0 {
				t.Errorf("%s: bob has %d outstanding", tt.attr, n)
			}
		}
		if tt.attr == "L_rpm" {
			if have := st.item(alice)["L_rpm"]; have == nil {
				t.Error("the level is gone")
			}
		}
		if _, err := other.Peek(t.Context(), alice); err == nil && tt.value != nil {
			t.Errorf("%s %v: no error when peeked at", tt.attr, tt.value)
		}
		st.want(seen, true, of(bkt("bob"), rpm, 10))
	}
}
