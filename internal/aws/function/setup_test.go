package function_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/aws/function"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/store/memory"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// kept is a store that stays open when a limiter on it is closed.
type kept struct{ *memory.Store }

func (kept) Close() error { return nil }

// bundle is a function on a table, with the responses that it sends to CloudFormation.
type bundle struct {
	*function.Provisioner
	t   *testing.T
	lim *weir.Limiter // on the same table
	url string

	mu        sync.Mutex
	responses []map[string]any
	status    []int // what CloudFormation answers first; then 200
}

func setup(t *testing.T) *bundle {
	t.Helper()
	st := kept{memory.New(nil)}
	open := func(context.Context) (*weir.Limiter, error) { return weir.New(weir.Config{Store: st}) }
	lim, err := open(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = lim.Close() })
	b := &bundle{
		t: t, lim: lim,
		Provisioner: &function.Provisioner{Open: open, Table: "limits", Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Anywhere: true},
	}
	b.url = "https://cloudformation.test/secret"
	b.Client = &http.Client{Transport: direct(b.cloudFormation)}
	return b
}

// direct makes a handler answer without a connection.
type direct http.HandlerFunc

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	d(rec, r)
	return rec.Result(), nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) cloudFormation(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.status) > 0 {
		w.WriteHeader(b.status[0])
		b.status = b.status[1:]
		return
	}
	var resp map[string]any
	if err := json.Unmarshal(text, &resp); err != nil || r.Method != http.MethodPut || len(text) > 4096 || r.Header.Get("Content-Type") != "" {
		b.t.Errorf("%s of %d bytes as %q: %v", r.Method, len(text), r.Header.Get("Content-Type"), err)
	}
	b.responses = append(b.responses, resp)
}

// ask invokes the function directly.
func (b *bundle) ask(payload string) (function.Answer, string) {
	b.t.Helper()
	got, err := b.Handle(b.t.Context(), json.RawMessage(payload))
	must(b.t, err)
	text, err := json.MarshalIndent(got, "", "  ")
	must(b.t, err)
	return got.(function.Answer), string(text) + "\n"
}

// event is an event as CloudFormation sends it.
type event struct {
	RequestType        string
	RequestID          string `json:"RequestId"`
	ResponseURL        string
	ResourceType       string
	LogicalResourceID  string `json:"LogicalResourceId"`
	StackID            string `json:"StackId"`
	PhysicalResourceID string `json:"PhysicalResourceId,omitempty"`
	ResourceProperties map[string]any
}

func (ev *event) encode(t *testing.T) []byte {
	t.Helper()
	text, err := json.Marshal(ev)
	must(t, err)
	return text
}

func (b *bundle) event(kind, id string, properties map[string]any) event {
	return event{
		kind, kind + " " + id, b.url, function.ResourceType, "Limits",
		"arn:aws:cloudformation:us-east-1:123456789012:stack/tenants/6e0f1e70", "", properties,
	}
}

// send sends an event and returns the response that CloudFormation gets.
func (b *bundle) send(ev event) map[string]any {
	b.t.Helper()
	b.mu.Lock()
	n := len(b.responses)
	b.mu.Unlock()
	if _, err := b.Handle(b.t.Context(), ev.encode(b.t)); err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.responses) == n {
		b.t.Fatal("no answer")
	}
	resp := b.responses[len(b.responses)-1]
	if resp["RequestId"] != ev.RequestID || resp["StackId"] != ev.StackID || resp["LogicalResourceId"] != ev.LogicalResourceID {
		b.t.Errorf("answer %v to %v", resp, ev)
	}
	return resp
}

// wants checks an answer and returns the physical id.
func wants(t *testing.T, resp map[string]any, status, reason string) string {
	t.Helper()
	got, _ := resp["Reason"].(string)
	if resp["Status"] != status || !strings.Contains(got, reason) || (reason == "") != (got == "") {
		t.Fatalf("answered %v, want %s %q", resp, status, reason)
	}
	return resp["PhysicalResourceId"].(string)
}

// properties returns the properties of a resource that weir limits cfn-template creates from a manifest, in the form in
// which CloudFormation passes them on: with numbers and booleans as text.
func properties(t *testing.T, text string) map[string]any {
	t.Helper()
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "test", Text: []byte(text)}}, strictyaml.Options{})
	must(t, err)
	var doc struct {
		Resources map[string]struct {
			Type       string         `yaml:"Type"`
			Properties map[string]any `yaml:"Properties"`
		} `yaml:"Resources"`
	}
	must(t, yaml.Unmarshal(function.Template(ms), &doc))
	r := doc.Resources[function.LogicalID(ms[0])]
	if r.Type != "Custom::WeirLimits" {
		t.Fatalf("template of %s", r.Type)
	}
	delete(r.Properties, "ServiceToken")
	return texts(r.Properties).(map[string]any)
}

func texts(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for k, x := range v {
			out[k] = texts(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = texts(v[i])
		}
		return out
	}
	return fmt.Sprint(v)
}

// live returns the live state of a namespace as a manifest.
func (b *bundle) live(namespace string) string {
	b.t.Helper()
	m, _, err := manifest.Export(b.t.Context(), b.lim.In(namespace), manifest.DefaultName)
	if err != nil {
		return err.Error()
	}
	return string(m.Text())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s is otherwise:\n%s", path, got)
	}
}
