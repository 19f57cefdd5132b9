package httpapi_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store/memory"
)

// document is openapi.json.
type document map[string]any

func readDocument(t testing.TB) document {
	t.Helper()
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func newLimiter(t *testing.T) *weir.Limiter {
	t.Helper()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	return lim
}

// TestDocument asserts that the document has exactly the routes of the server, with their parameters, and that every
// reference in it resolves.
func TestDocument(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: newLimiter(t)}})
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	ids := make(map[any]bool)
	for path, item := range d.object("paths") {
		item := item.(map[string]any)
		for method, op := range item {
			if method == "parameters" {
				continue
			}
			op := op.(map[string]any)
			documented = append(documented, strings.ToUpper(method)+" "+path)
			if ids[op["operationId"]] || op["summary"] == nil {
				t.Errorf("%s %s: has no summary, or the operationId of another", method, path)
			}
			ids[op["operationId"]] = true
			var names []string
			for _, list := range []any{item["parameters"], op["parameters"]} {
				list, _ := list.([]any)
				for _, p := range list {
					if p := d.deref(p.(map[string]any)); p["in"] == "path" {
						names = append(names, "{"+p["name"].(string)+"}")
					}
				}
			}
			if got := strings.Count(path, "{"); got != len(names) || slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(path, n) }) {
				t.Errorf("%s %s: documents %q", method, path, names)
			}
		}
	}
	routes := s.Routes()
	slices.Sort(routes)
	slices.Sort(documented)
	if !slices.Equal(routes, documented) {
		t.Errorf("routed     %q\ndocumented %q", routes, documented)
	}
	d.walk(map[string]any(d), func(m map[string]any) {
		if ref, ok := m["$ref"].(string); ok && d.at(ref) == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	})
}

// TestDeclared asserts that the document describes each operation with the name, parameters and members of a body that
// are declared.
func TestDeclared(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	for _, o := range api.Operations {
		item := d.object("paths")[o.Path].(map[string]any)
		op, _ := item[strings.ToLower(o.Method)].(map[string]any)
		if op["operationId"] != o.Name {
			t.Errorf("%s %s: the operationId is %v, not %s", o.Method, o.Path, op["operationId"], o.Name)
			continue
		}
		got, want := make(map[string]bool), make(map[string]bool)
		for _, list := range []any{item["parameters"], op["parameters"]} {
			list, _ := list.([]any)
			for _, p := range list {
				p := d.deref(p.(map[string]any))
				got[fmt.Sprint(p["in"], " ", p["name"])] = true
			}
		}
		if body, ok := op["requestBody"].(map[string]any); ok {
			schema := d.deref(body)["content"].(map[string]any)["application/json"].(map[string]any)["schema"].(map[string]any)
			props, _ := d.deref(schema)["properties"].(map[string]any) // manifests have a schema of their own
			for name := range props {
				got["body "+name] = true
			}
		}
		if o.Need != api.ReadAll && o.Need != api.AdminAll {
			want["query namespace"] = true
		}
		for _, f := range o.Fields() {
			if f.In != "body" {
				want[cmp.Or(f.In, "body")+" "+f.Name] = true
			}
			if f.In == "body" || f.In == "" && f.Name == "namespace" {
				delete(want, "query namespace")
			}
		}
		maps.DeleteFunc(want, func(what string, _ bool) bool {
			return strings.HasPrefix(what, "header ") && !got[what] // it is read only to be refused
		})
		if o.Method == "GET" {
			delete(got, "header If-None-Match") // the server looks at it, not the operation
		}
		maps.DeleteFunc(got, func(what string, _ bool) bool { return o.Raw && !want[what] }) // only the server reads it
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s: - declared, + documented:\n%s", o.Name, diff)
		}
		if o.Raw {
			continue // it writes more than a client reads
		}
		for _, status := range []string{"200", "201"} {
			if r, ok := op["responses"].(map[string]any)[status].(map[string]any); ok {
				content := d.deref(r)["content"].(map[string]any)["application/json"].(map[string]any)
				d.members(t, o.Name, reflect.TypeOf(o.NewResponse()).Elem(), content["schema"].(map[string]any))
			}
		}
	}
}

// members checks that a schema has the members of a type, and requires those that are always written.
func (d document) members(t *testing.T, at string, typ reflect.Type, schema map[string]any) {
	t.Helper()
	schema = d.deref(schema)
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if items, ok := schema["items"].(map[string]any); ok && typ.Kind() == reflect.Slice {
		d.members(t, at+"[]", typ.Elem(), items)
		return
	}
	if typ.Kind() != reflect.Struct || typ.Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}
	props, _ := schema["properties"].(map[string]any)
	if props == nil {
		return // one of several schemas
	}
	declared, required := make(map[string]bool), make(map[string]bool)
	for _, f := range flat(typ) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		declared[name] = true
		required[name] = !strings.Contains(options, "omit")
		if prop, ok := props[name].(map[string]any); ok {
			d.members(t, at+"."+name, f.Type, prop)
		}
	}
	for name := range props {
		if !declared[name] {
			t.Errorf("%s.%s is documented, not declared", at, name)
		}
	}
	always, _ := schema["required"].([]any)
	for name := range declared {
		if _, ok := props[name]; !ok {
			t.Errorf("%s.%s is declared, not documented", at, name)
		} else if slices.Contains(always, any(name)) != required[name] {
			t.Errorf("%s.%s: required is %v, but declared %v", at, name, !required[name], required[name])
		}
	}
}

// flat returns the fields of a struct and, in place of embedded structs, of these.
func flat(typ reflect.Type) (fields []reflect.StructField) {
	for f := range typ.Fields() {
		if f.Anonymous {
			fields = append(fields, flat(f.Type)...)
		} else {
			fields = append(fields, f)
		}
	}
	return fields
}

// TestGuide asserts that the guide explains every kind of problem.
func TestGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../docs/integrate/http.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range httpapi.Kinds() {
		_, slug, _ := strings.Cut(uri, "#")
		if !strings.Contains(string(guide), "\n#### "+slug+"\n") {
			t.Errorf("the guide has no heading %q", slug)
		}
	}
}

func (d document) object(key string) map[string]any { return d[key].(map[string]any) }

// at resolves a reference.
func (d document) at(ref string) map[string]any {
	var at any = map[string]any(d)
	for key := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	m, _ := at.(map[string]any)
	return m
}

// deref merges the target of a reference with the fields beside it.
func (d document) deref(m map[string]any) map[string]any {
	ref, ok := m["$ref"].(string)
	if !ok {
		return m
	}
	out := maps.Clone(d.deref(d.at(ref)))
	for k, v := range m {
		if props, ok := out[k].(map[string]any); ok && k == "properties" {
			props = maps.Clone(props)
			maps.Copy(props, v.(map[string]any))
			v = props
		}
		out[k] = v
	}
	return out
}

func (d document) walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, x := range v {
			d.walk(x, visit)
		}
	case []any:
		for _, x := range v {
			d.walk(x, visit)
		}
	}
}

// check reports how an answer differs from its route's documentation.
func (d document) check(route string, a answer) []string {
	method, path, _ := strings.Cut(route, " ")
	op := d.object("paths")[path].(map[string]any)[strings.ToLower(method)].(map[string]any)
	responses := op["responses"].(map[string]any)
	response, ok := responses[strconv.Itoa(a.Code)].(map[string]any)
	if !ok {
		if response, ok = responses["default"].(map[string]any); !ok {
			return []string{fmt.Sprintf("%d is not documented", a.Code)}
		}
	}
	response = d.deref(response)
	headers, _ := response["headers"].(map[string]any)
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After", "Location", "ETag", "Weir-Degraded"} {
		if _, ok := headers[name]; !ok && a.Header().Get(name) != "" {
			return []string{"the header " + name + " is not documented"}
		}
	}
	content, ok := response["content"].(map[string]any)
	if !ok {
		if a.Body.Len() > 0 {
			return []string{"a body is not documented"}
		}
		return nil
	}
	media, ok := content[a.Header().Get("Content-Type")].(map[string]any)
	if !ok {
		return []string{a.Header().Get("Content-Type") + " is not documented"}
	}
	return d.validate(media["schema"].(map[string]any), a.JSON, "body")
}

// validate reports how a value violates a schema, for the parts of JSON Schema that openapi.json uses.
func (d document) validate(schema map[string]any, v any, at string) (bad []string) {
	schema = d.deref(schema)
	if want, ok := schema["const"]; ok && want != v {
		bad = append(bad, fmt.Sprintf("%s: is %v, not %v", at, v, want))
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		bad = append(bad, fmt.Sprintf("%s: is %v, none of %v", at, v, enum))
	}
	if want, ok := schema["type"]; ok && !isType(want.(string), v) {
		return append(bad, fmt.Sprintf("%s: is %v, no %s", at, v, want))
	}
	switch v := v.(type) {
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i := range v {
			bad = append(bad, d.validate(items, v[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
	case map[string]any:
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				bad = append(bad, fmt.Sprintf("%s: has no %s", at, name))
			}
		}
		props, _ := schema["properties"].(map[string]any)
		for name, x := range v {
			if prop, ok := props[name].(map[string]any); ok {
				bad = append(bad, d.validate(prop, x, at+"."+name)...)
				continue
			}
			switch more := schema["additionalProperties"].(type) {
			case bool:
				bad = append(bad, fmt.Sprintf("%s.%s: is not documented", at, name))
			case map[string]any:
				bad = append(bad, d.validate(more, x, at+"."+name)...)
			}
		}
	}
	return bad
}

func isType(want string, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return want == "object"
	case []any:
		return want == "array"
	case string:
		return want == "string"
	case bool:
		return want == "boolean"
	case float64:
		return want == "number" || want == "integer" && v == float64(int64(v))
	}
	return false
}
