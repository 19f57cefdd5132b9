package httpapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// FuzzAcquireBody compares the decoder with encoding/json's tokens, judged strictly.
func FuzzAcquireBody(f *testing.F) {
	for _, s := range []string{
		`{"entity":"key-alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":500}}`,
		` { "resource" : "a\u0062\n\ud83d\ude00\/" , "tokens" : { } , "wait" : "1.5s" } `,
		`{"tokens":{"a":-9223372036854775808,"b":9223372036854775807,"c":-0}}`,
		`{"tokens":{"a":01}}`, `{"tokens":{"a":1.0}}`, `{"tokens":{"a":1e3}}`, `{"tokens":{"a":1,"a":2}}`, `{"tokens":{"a":-}}`,
		`{"limits":["rpm:1/s",{"name":"x","amount":1,"period":"min","burst":2}],"on_unavailable":"allow","namespace":"n"}`,
		`{"entity":null}`, `{"Entity":"x"}`, `{"entity":"\ud800"}`, "{\"entity\":\"\xff\"}", `{"entity":"a",}`, `{"entity":"a"} x`, `{}`, `[]`, ``, `{"entity":"a" "resource":"b"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		namespace, got, wait, err := httpapi.ParseAcquire(data)
		var bad *weir.ConfigError
		if err != nil && (!errors.As(err, &bad) || bad.Field == "" || !utf8.ValidString(strings.ToValidUTF8(bad.Error(), ""))) {
			t.Fatalf("got %v, which names no field", err)
		}
		want, refErr := reference(data)
		if (err == nil) != (refErr == nil) {
			t.Fatalf("%q: got %v, want %v", data, err, refErr)
		}
		if err != nil {
			return
		}
		if namespace != want.Namespace || wait != want.wait || got.Entity != want.Entity || got.Resource != want.Resource ||
			string(got.OnUnavailable) != want.OnUnavailable || !reflect.DeepEqual(got.Tokens, want.Tokens) || !slices.Equal(got.Limits, want.Limits) {
			t.Fatalf("%q: got %q %+v %s, want %+v", data, namespace, got, wait, want)
		}
	})
}

// FuzzOperations sends any parameters and any body to each operation: the answer is documented, and never the server's
// fault.
func FuzzOperations(f *testing.F) {
	params := map[string]string{
		"parent": "alice", "prefix": "a", "children": "true", "deleted": "true", "orphaned": "true", "subject": "system", "manifest": "m",
		"entity": "alice", "resource": "gpt-4", "tokens": "rpm=1,tpm=2", "limits": "rpm:1/min:2", "limit": "rpm", "on_unavailable": "deny",
		"window": "hourly", "from": "2026-11", "to": "2026-11-21T13:00:00Z", "by": "resource", "max": "1", "after": "x",
	}
	members := map[string]string{
		"id": `"a"`, "name": `"n"`, "parent": `""`, "cascade": `true`, "metadata": `{"b":"c"}`, "entity": `"a"`, "resource": `"b"`,
		"namespace": `"default"`, "tokens": `{"rpm":1}`, "limits": `["rpm:1/min"]`, "on_unavailable": `"deny"`, "near_limit": `[80]`,
	}
	for i, o := range api.Operations {
		var query, body []string
		for _, field := range o.Fields() {
			switch field.In {
			case "query":
				query = append(query, field.Name+"="+params[field.Name])
			case "":
				body = append(body, strconv.Quote(field.Name)+":"+members[field.Name])
			}
		}
		object := "{" + strings.Join(body, ",") + "}"
		f.Add(uint(i), "", "", "")
		f.Add(uint(i), "", object, "")
		f.Add(uint(i), strings.Join(query, "&"), object, `"0"`)
		for _, one := range query {
			f.Add(uint(i), one, object, "")
		}
	}
	doc := readDocument(f)
	f.Fuzz(func(t *testing.T, which uint, query, body, match string) {
		s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: newLimiter(t)}})
		if err != nil {
			t.Fatal(err)
		}
		o := api.Operations[which%uint(len(api.Operations))]
		target := strings.NewReplacer("{id}", "alice", "{name}", "n", "{entity}", "alice", "{resource}", "gpt-4", "{revision}", "1").Replace(o.Path)
		r := httptest.NewRequestWithContext(t.Context(), o.Method, target, strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", "application/json")
		if match != "" {
			r.Header.Set("If-Match", match)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		a := answer{ResponseRecorder: w}
		if w.Body.Len() > 0 {
			if err := json.Unmarshal(w.Body.Bytes(), &a.JSON); err != nil {
				t.Fatalf("%s %s?%s: %s: %v", o.Method, target, query, w.Body, err)
			}
		}
		if w.Code >= 500 {
			t.Errorf("%s %s?%s %s: %d %s", o.Method, target, query, body, w.Code, w.Body)
		}
		for _, bad := range doc.check(o.Method+" "+o.Path, a) {
			t.Errorf("%s %s?%s %s: %d %s", o.Method, target, query, body, w.Code, bad)
		}
	})
}

type referenceBody struct {
	Entity        string       `json:"entity"`
	Resource      string       `json:"resource"`
	Tokens        weir.Tokens  `json:"tokens"`
	Namespace     string       `json:"namespace"`
	Limits        []weir.Limit `json:"limits"`
	OnUnavailable string       `json:"on_unavailable"`
	Wait          string       `json:"wait"`
	wait          time.Duration
}

// reference decodes with encoding/json, after the checks that encoding/json does not make.
func reference(data []byte) (b referenceBody, err error) {
	if !utf8.Valid(data) {
		return b, errors.New("not UTF-8")
	}
	if !json.Valid(data) {
		return b, errors.New("not JSON")
	}
	// encoding/json turns half a surrogate pair into U+FFFD, which may also occur literally.
	var any1, any2 any
	swapped := bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\uFFFD"), []byte("X")), []byte(`\\`), []byte("YY"))
	for _, esc := range []string{`\ufffd`, `\uFFFD`} {
		swapped = replaceFold(swapped, esc)
	}
	if err := json.Unmarshal(data, &any1); err != nil {
		return b, err
	}
	if json.Unmarshal(swapped, &any2) == nil && strings.Contains(fmt.Sprint(any2), "\uFFFD") {
		return b, errors.New("half a surrogate pair")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := strict(d, 0, nil); err != nil {
		return b, err
	}
	d = json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return b, err
	}
	var has map[string]json.RawMessage
	if err := json.Unmarshal(data, &has); err != nil {
		return b, err
	}
	for _, name := range []string{"namespace", "on_unavailable", "wait"} {
		if string(has[name]) == `""` {
			return b, errors.New("empty " + name)
		}
	}
	if _, ok := has["limits"]; ok && len(b.Limits) == 0 {
		return b, errors.New("no limits")
	}
	for _, l := range b.Limits {
		if l.Amount < 1 || l.Burst < 1 {
			return b, errors.New("limit below 1")
		}
	}
	switch b.OnUnavailable {
	case "", "deny", "allow", "local":
	default:
		return b, errors.New("no policy")
	}
	if b.Wait != "" {
		if b.wait, err = time.ParseDuration(b.Wait); err != nil || b.wait < 0 || b.wait > time.Minute {
			return b, errors.New("bad wait")
		}
	}
	return b, nil
}

func replaceFold(data []byte, old string) []byte {
	for i := 0; i+len(old) <= len(data); i++ {
		if strings.EqualFold(string(data[i:i+len(old)]), old) && data[i+1] == 'u' {
			copy(data[i:], "ZZZZZZ")
		}
	}
	return data
}

// strict refuses nulls, fractions, names that are repeated or in another case, and limits with missing fields.
func strict(d *json.Decoder, depth int, known []string) error {
	tok, err := d.Token()
	if err != nil {
		return err
	}
	switch tok := tok.(type) {
	case nil:
		return errors.New("null")
	case json.Number:
		if _, err := strconv.ParseInt(tok.String(), 10, 64); err != nil {
			return errors.New("not a whole number")
		}
	case json.Delim:
		seen := map[string]bool{}
		top := []string{"entity", "resource", "tokens", "namespace", "limits", "on_unavailable", "wait"}
		for d.More() {
			if tok == '[' {
				if err := strict(d, depth+1, []string{"name", "amount", "period", "burst"}); err != nil {
					return err
				}
				continue
			}
			name, err := d.Token()
			if err != nil {
				return err
			}
			if seen[name.(string)] {
				return errors.New("twice")
			}
			seen[name.(string)] = true
			if depth == 0 && !slices.Contains(top, name.(string)) || known != nil && !slices.Contains(known, name.(string)) {
				return errors.New("unknown")
			}
			if name == "burst" && known != nil {
				var n int64
				if err := d.Decode(&n); err != nil || n < 1 {
					return errors.New("burst below 1")
				}
				continue
			}
			if err := strict(d, depth+1, nil); err != nil {
				return err
			}
		}
		if known != nil && !(seen["name"] && seen["amount"] && seen["period"]) {
			return errors.New("an incomplete limit")
		}
		_, err := d.Token()
		return err
	}
	return nil
}
