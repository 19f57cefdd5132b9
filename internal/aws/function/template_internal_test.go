package function

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
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
		properties := doc["Resources"].(map[string]any)["Limits"].(map[string]any)["Properties"]
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
