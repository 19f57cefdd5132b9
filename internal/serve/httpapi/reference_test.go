package httpapi_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/testkit/pagetest"
)

// TestReference checks that docs/reference/http.md has what openapi.json declares.
func TestReference(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	var b strings.Builder
	b.WriteString(`# HTTP operations

<!-- Generated from openapi.json: go test ./internal/serve/httpapi -run TestReference -update-pages. The next run overwrites
edits made here. -->

Every operation, then every object of requests and answers. [The guide](../integrate/http.md) has leases, errors and
waiting; a server serves the same as OpenAPI at /v1/openapi.json. A member with * is required.
`)
	for _, tag := range d["tags"].([]any) {
		tag := tag.(map[string]any)
		fmt.Fprintf(&b, "\n## %s\n", tag["name"])
		if text, ok := tag["description"].(string); ok {
			fmt.Fprintf(&b, "\n%s.\n", text)
		}
		paths := d.object("paths")
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			item := paths[path].(map[string]any)
			for _, method := range []string{"get", "post", "put", "patch", "delete"} {
				if op, ok := item[method].(map[string]any); ok && slices.Contains(op["tags"].([]any), tag["name"]) {
					d.operation(&b, strings.ToUpper(method)+" "+path, item, op)
				}
			}
		}
	}
	b.WriteString("\n## Objects\n")
	schemas := d.object("components")["schemas"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		schema := schemas[name].(map[string]any)
		if text, ok := schema["description"].(string); ok || schema["properties"] != nil {
			fmt.Fprintf(&b, "\n### %s\n\n", name)
			if ok {
				fmt.Fprintf(&b, "%s.\n\n", strings.TrimSuffix(text, "."))
			}
			d.table(&b, schema)
		}
	}
	pagetest.Equal(t, "http.md", strings.TrimRight(b.String(), "\n")+"\n")
}

// operation writes an operation: its summary, body and parameters, and the answers that are not errors.
func (d document) operation(b *strings.Builder, title string, item, op map[string]any) {
	fmt.Fprintf(b, "\n### %s\n\n%s.", title, strings.TrimSuffix(op["summary"].(string), "."))
	if text, ok := op["description"].(string); ok {
		fmt.Fprintf(b, " %s.", strings.TrimSuffix(text, "."))
	}
	if body, ok := op["requestBody"].(map[string]any); ok {
		body = d.deref(body)
		for _, media := range slices.Sorted(maps.Keys(body["content"].(map[string]any))) {
			schema := body["content"].(map[string]any)[media].(map[string]any)["schema"].(map[string]any)
			fmt.Fprintf(b, " Body (%s): %s.", media, d.kind(schema))
		}
	}
	responses := op["responses"].(map[string]any)
	for _, code := range slices.Sorted(maps.Keys(responses)) {
		r := d.deref(responses[code].(map[string]any))
		if code >= "400" {
			continue
		}
		fmt.Fprintf(b, " %s: %s", code, strings.TrimSuffix(r["description"].(string), "."))
		content, _ := r["content"].(map[string]any)
		if media, ok := content["application/json"].(map[string]any); ok {
			fmt.Fprintf(b, " (%s)", d.kind(media["schema"].(map[string]any)))
		}
		b.WriteString(".")
	}
	b.WriteString("\n")
	var rows []string
	for _, list := range []any{item["parameters"], op["parameters"]} {
		list, _ := list.([]any)
		for _, p := range list {
			p := d.deref(p.(map[string]any))
			text, _ := p["description"].(string)
			rows = append(rows, fmt.Sprintf("| `%v` | %s | %s | %s |\n", p["name"], p["in"], d.kind(p["schema"].(map[string]any)), cell(text)))
		}
	}
	if len(rows) > 0 {
		fmt.Fprintf(b, "\n| parameter | in | | |\n|---|---|---|---|\n%s", strings.Join(rows, ""))
	}
}

// table writes the members of an object.
func (d document) table(b *strings.Builder, schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	if len(properties) == 0 {
		return
	}
	b.WriteString("| member | | |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p := properties[name].(map[string]any)
		text, _ := p["description"].(string)
		mark := ""
		if slices.Contains(required, any(name)) {
			mark = "*"
		}
		fmt.Fprintf(b, "| `%s`%s | %s | %s |\n", name, mark, d.kind(p), cell(text))
	}
}

// kind names what a schema allows.
func (d document) kind(schema map[string]any) string {
	if ref, ok := schema["$ref"].(string); ok {
		name := ref[strings.LastIndex(ref, "/")+1:]
		target := d.at(ref)
		if target["properties"] == nil && target["description"] == nil {
			return d.kind(target)
		}
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	}
	if of, ok := schema["oneOf"].([]any); ok {
		var kinds []string
		for _, s := range of {
			kinds = append(kinds, d.kind(s.(map[string]any)))
		}
		return strings.Join(kinds, " or ")
	}
	if values, ok := schema["enum"].([]any); ok {
		return strings.Trim(fmt.Sprint(values), "[]")
	}
	if value, ok := schema["const"]; ok {
		return fmt.Sprint(value)
	}
	kind, _ := schema["type"].(string)
	if items, ok := schema["items"].(map[string]any); ok {
		return "list of " + d.kind(items)
	}
	if format, ok := schema["format"].(string); ok {
		kind = format
	}
	if bound, ok := schema["maximum"]; ok {
		kind += fmt.Sprintf(" ≤ %v", bound)
	}
	if value, ok := schema["default"]; ok {
		kind += fmt.Sprintf(", default %v", value)
	}
	return cmp.Or(kind, "any")
}

// cell is text in a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", `\<`).Replace(text)
}
