// Package cloudtest checks IAM policies against what code does: a [Recorder] records the DynamoDB calls it makes, and
// a [Policy] decides whether IAM would allow them.
package cloudtest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Call is a DynamoDB call as IAM sees it.
type Call struct {
	Action string   // such as "dynamodb:GetItem"; a transaction is several calls
	Index  string   // "" for the table itself
	Keys   []string // the hash keys it concerns; none for a scan and for calls about the table
}

// Recorder forwards calls and records them.
type Recorder struct {
	URL string // of the recording endpoint

	mu    sync.Mutex
	calls []Call
	bad   []string
}

// Record returns a recorder in front of a DynamoDB engine. The test fails if the recorder did not understand a call.
func Record(t testing.TB, endpoint string) *Recorder {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	r := &Recorder{}
	proxy := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			r.see(req.Header.Get("X-Amz-Target"), body)
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, req)
	}))
	r.URL = server.URL
	t.Cleanup(func() {
		server.Close()
		for _, what := range r.bad {
			t.Errorf("not understood: %s", what)
		}
	})
	return r
}

// Calls returns the calls made since it was last called.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// hashKeys are the hash keys of the table and of its indexes.
var hashKeys = map[string]string{"": "PK", "all": "GP", "parent": "PP", "scope": "RP"}

type value struct{ S string }

type request struct {
	IndexName                 string
	Key, Item                 map[string]value
	RequestItems              map[string]struct{ Keys []map[string]value }
	TransactItems             []map[string]struct{ Key, Item map[string]value }
	KeyConditionExpression    string
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues map[string]value
}

func (r *Recorder) see(target string, body []byte) {
	_, op, _ := strings.Cut(target, ".")
	var in request
	err := json.Unmarshal(body, &in)
	calls := in.calls(op)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || calls == nil {
		r.bad = append(r.bad, target+" "+string(body))
	}
	r.calls = append(r.calls, calls...)
}

// parts maps the parts of a transaction to their actions.
var parts = map[string]string{
	"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem",
}

// calls returns nil for a request it does not understand.
func (in *request) calls(op string) []Call {
	one := func(action, index string, keys ...string) []Call {
		if slices.Contains(keys, "") {
			return nil
		}
		return []Call{{"dynamodb:" + action, index, keys}}
	}
	switch op {
	case "GetItem", "UpdateItem", "DeleteItem":
		return one(op, "", in.Key["PK"].S)
	case "PutItem":
		return one(op, "", in.Item["PK"].S)
	case "BatchGetItem":
		var keys []string
		for _, of := range in.RequestItems {
			for _, k := range of.Keys {
				keys = append(keys, k["PK"].S)
			}
		}
		return one(op, "", keys...)
	case "TransactWriteItems":
		var all []Call
		for _, item := range in.TransactItems {
			for part, of := range item {
				c := one(parts[part], "", of.Key["PK"].S+of.Item["PK"].S)
				if parts[part] == "" || c == nil {
					return nil
				}
				all = append(all, c...)
			}
		}
		return all
	case "Query":
		return one(op, in.IndexName, in.hash())
	case "Scan":
		return one(op, in.IndexName)
	case "DescribeTable", "DescribeTimeToLive", "CreateTable", "UpdateTable", "UpdateTimeToLive",
		"UpdateContinuousBackups", "DescribeContinuousBackups":
		return one(op, "")
	}
	return nil
}

var equal = regexp.MustCompile(`([#\w]+)\s*=\s*(:\w+)`)

// hash returns the hash key that a query names, or "" if that is unclear.
func (in *request) hash() string {
	for _, m := range equal.FindAllStringSubmatch(in.KeyConditionExpression, -1) {
		name := m[1]
		if spelled, ok := in.ExpressionAttributeNames[name]; ok {
			name = spelled
		}
		if name == hashKeys[in.IndexName] {
			return in.ExpressionAttributeValues[m[2]].S
		}
	}
	return ""
}
