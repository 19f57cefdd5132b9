package function

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// A template carries everything that the YAML does, even when CloudFormation passes numbers and booleans on as text.
func TestTemplate(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"seed", "all"} {
		text, err := os.ReadFile("../../manifest/testdata/good/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		ms, err := manifest.Decode([]strictyaml.Source{{Name: name, Text: text}}, strictyaml.Options{})
		if err != nil {
			t.Fatal(err)
		}
		template := Template(ms)
		want, err := os.ReadFile("testdata/" + name + ".template")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(template, want) {
			t.Errorf("the template of %s is otherwise:\n%s", name, template)
		}
		var doc map[string]any
		if err := yaml.Unmarshal(template, &doc); err != nil {
			t.Fatal(err)
		}
		properties := doc["Resources"].(map[string]any)[LogicalID(ms[0])].(map[string]any)["Properties"]
		handed, err := json.Marshal(asText(properties))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(handed), ":true") || strings.Contains(string(handed), ":5") {
			t.Fatalf("not as text: %s", handed)
		}
		back, err := manifestOf(handed)
		if err != nil {
			t.Fatal(err)
		}
		if back.Hash() != ms[0].Hash() {
			t.Errorf("%s came back as\n%s", name, back.Text())
		}
	}
	if _, err := manifestOf([]byte("{}")); err == nil {
		t.Error("no manifest is accepted")
	}
}

// The name of a manifest's resource does not depend on the other manifests, and differs for each.
func TestLogicalID(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, m := range []*manifest.Manifest{
		{Namespace: "tenant-alpha", Name: "default"},
		{Namespace: "tenant-alpha", Name: "b"},
		{Namespace: "tenantAlpha", Name: "default"},
		{Namespace: strings.Repeat("é/x", 80), Name: "default"},
	} {
		id := LogicalID(m)
		if seen[id] || !regexp.MustCompile(`^[A-Za-z0-9]{1,255}$`).MatchString(id) {
			t.Errorf("%s for %+v", id, m)
		}
		seen[id] = true
		if other := (&manifest.Manifest{Namespace: "a", Name: "default"}); !bytes.Contains(Template([]*manifest.Manifest{other, m}), []byte("\n  "+id+":\n")) {
			t.Errorf("%s is not in the template of two", id)
		}
	}
	if got := LogicalID(&manifest.Manifest{Namespace: "tenant-alpha", Name: "default"}); got != "LimitsTenantAlphaebebf4e9" {
		t.Error(got)
	}
}

// What gives records away waits for what takes them, which would otherwise find them deleted.
func TestTemplateOrder(t *testing.T) {
	t.Parallel()
	const text = "namespace: a\n---\nnamespace: a\nmanifest: b\nmoved: {from: [default]}\nresources: {r: {limits: {rpm: 1/min}}}\n"
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "x", Text: []byte(text)}}, strictyaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Resources map[string]struct {
			DependsOn []string `yaml:"DependsOn"`
		} `yaml:"Resources"`
	}
	if err := yaml.Unmarshal(Template(ms), &doc); err != nil {
		t.Fatal(err)
	}
	takes, gives := LogicalID(&manifest.Manifest{Namespace: "a", Name: "b"}), LogicalID(&manifest.Manifest{Namespace: "a", Name: "default"})
	if got := doc.Resources; len(got[takes].DependsOn) > 0 || len(got[gives].DependsOn) != 1 || got[gives].DependsOn[0] != takes {
		t.Errorf("%+v", got)
	}
}

// asText turns everything except mappings and lists into text.
func asText(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for k, x := range v {
			out[k] = asText(x)
		}
		return out
	case []any:
		for i := range v {
			v[i] = asText(v[i])
		}
		return v
	}
	return fmt.Sprint(v)
}
