package cloudtest_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/weirlimits/weir/internal/testkit/cloudtest"
)

const template = `{"Resources":{"Table":{"Type":"AWS::DynamoDB::Table"},"P":{"Properties":{"PolicyDocument":{"Statement":[
{"Effect":"Allow","Action":["dynamodb:GetItem","dynamodb:Scan"],"Resource":{"Fn::GetAtt":["Table","Arn"]},
 "Condition":{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":"${aws:PrincipalTag/ns}/*"},"Null":{"dynamodb:LeadingKeys":"false"}}},
{"Effect":"Allow","Action":"dynamodb:Query","Resource":{"Fn::Sub":"${Table.Arn}/index/*"}},
{"Effect":"Deny","Action":"dynamodb:*","Resource":{"Fn::Sub":"${Table.Arn}/index/scope"}},
{"Effect":"Deny","Action":"dynamodb:*","Resource":{"Fn::GetAtt":["Table","Arn"]},"Condition":{"ForAnyValue:StringEquals":{"dynamodb:LeadingKeys":"one/S"}}},
{"Effect":"Allow","Action":"s3:PutObject","Resource":"*"}]}}}}}`

func TestPolicy(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := json.Unmarshal([]byte(template), &doc); err != nil {
		t.Fatal(err)
	}
	resolved, err := cloudtest.Resolve(doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := cloudtest.PolicyOf(resolved, "P")
	if err != nil {
		t.Fatal(err)
	}
	if len(p) != 4 {
		t.Fatalf("%d statements, want the 4 about the table", len(p))
	}
	one := cloudtest.Principal{"ns": "one"}
	for _, c := range []struct {
		name string
		who  cloudtest.Principal
		call cloudtest.Call
		want bool
	}{
		{"own key", one, cloudtest.Call{Action: "dynamodb:GetItem", Keys: []string{"one/A"}}, true},
		{"another's key", one, cloudtest.Call{Action: "dynamodb:GetItem", Keys: []string{"two/A"}}, false},
		{"one of two is another's", one, cloudtest.Call{Action: "dynamodb:GetItem", Keys: []string{"one/A", "two/A"}}, false},
		{"a name that begins alike", one, cloudtest.Call{Action: "dynamodb:GetItem", Keys: []string{"one2/A"}}, false},
		{"a denied key", one, cloudtest.Call{Action: "dynamodb:GetItem", Keys: []string{"one/S"}}, false},
		{"one of two is denied", one, cloudtest.Call{Action: "dynamodb:GetItem", Keys: []string{"one/A", "one/S"}}, false},
		{"no keys at all", one, cloudtest.Call{Action: "dynamodb:Scan"}, false},
		{"no tag", nil, cloudtest.Call{Action: "dynamodb:GetItem", Keys: []string{"/A"}}, false},
		{"another action", one, cloudtest.Call{Action: "dynamodb:PutItem", Keys: []string{"one/A"}}, false},
		{"an index", one, cloudtest.Call{Action: "dynamodb:Query", Index: "all", Keys: []string{"two/A"}}, true},
		{"a denied index", one, cloudtest.Call{Action: "dynamodb:Query", Index: "scope", Keys: []string{"two/A"}}, false},
		{"the table for an index", one, cloudtest.Call{Action: "dynamodb:Query", Keys: []string{"one/A"}}, false},
	} {
		if got := p.Allows(c.who, c.call); got != c.want {
			t.Errorf("%s: allowed %v, want %v", c.name, got, c.want)
		}
	}
	query := cloudtest.Call{Action: "dynamodb:Query", Index: "all", Keys: []string{"two/A"}}
	get := cloudtest.Call{Action: "dynamodb:GetItem", Keys: []string{"one/A"}}
	want := []string{"dynamodb:Scan", "dynamodb:GetItem, dynamodb:Scan on ${aws:PrincipalTag/ns}/*"}
	if got := p.Idle(one, []cloudtest.Call{query}); !slices.Equal(got, slices.Insert(slices.Clone(want), 0, "dynamodb:GetItem")) {
		t.Errorf("idle %q", got)
	}
	if got := p.Idle(one, []cloudtest.Call{query, get}); !slices.Equal(got, want[:1]) {
		t.Errorf("idle %q", got)
	}
}
