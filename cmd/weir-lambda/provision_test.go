package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirlimits/weir/internal/aws/function"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store/dynamodb"
)

// newTable makes a table in the engine.
func newTable(t *testing.T) (endpoint, table string) {
	t.Helper()
	endpoint, table = dynamotest.Engine(t), dynamotest.Table(t)
	_, err := dynamodb.Create(t.Context(), dynamotest.Client(t, endpoint), table, dynamodb.CreateConfig{})
	must(t, err)
	return endpoint, table
}

// The function plans, applies, and answers CloudFormation.
func TestProvision(t *testing.T) {
	t.Parallel()
	endpoint, table := newTable(t)
	answers := make(chan []byte, 1)
	cloudFormation := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answers <- body
	}))
	defer cloudFormation.Close()
	f := start(t, "WEIR_LAMBDA=provision", "WEIR_TABLE="+table, "AWS_ENDPOINT_URL_DYNAMODB="+endpoint, "WEIR_TEST_ANYWHERE=1")

	payload := map[string]any{"action": "plan", "manifest": map[string]any{
		"namespace": "tenant-alpha", "resources": map[string]any{"gpt-4": map[string]any{"limits": map[string]any{"rpm": map[string]any{"capacity": 1000}}}},
	}}
	a := invoke[function.Answer](f, payload)
	if a.Status != function.Planned || len(a.Changes) != 1 || a.Changes[0].Limits["rpm"].Capacity != 1000 {
		t.Errorf("planned %+v", a)
	}
	payload["action"] = "apply"
	for _, changes := range []int{1, 0} {
		if a = invoke[function.Answer](f, payload); a.Status != function.Applied || len(a.Changes) != changes || a.Result.Revision != 1 {
			t.Errorf("applied %+v", a)
		}
	}

	event := map[string]any{
		"RequestType": "Create", "RequestId": "1", "StackId": "s", "LogicalResourceId": "Limits", "ResponseURL": cloudFormation.URL,
		"ResourceType": function.ResourceType,
		"ResourceProperties": map[string]any{"ServiceToken": "arn", "Manifest": map[string]any{
			"namespace": "tenant-beta", "system": map[string]any{"limits": map[string]any{"rpm": map[string]any{"capacity": "5"}}},
		}},
	}
	for _, kind := range []string{"Create", "Delete"} {
		event["RequestType"], event["RequestId"] = kind, kind
		_ = invoke[any](f, event)
		var resp map[string]any
		must(t, json.Unmarshal(<-answers, &resp))
		id := "weir/" + table + "/tenant-beta/default"
		if resp["Status"] != "SUCCESS" || resp["PhysicalResourceId"] != id {
			t.Errorf("%s answered %v", kind, resp)
		}
		event["PhysicalResourceId"] = id
	}
}
