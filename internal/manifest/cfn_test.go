package manifest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/internal/manifest"
)

// A template carries everything that the YAML does, even when CloudFormation passes numbers and booleans on as text.
func TestTemplate(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"seed", "all"} {
		text, err := os.ReadFile("testdata/good/" + name + ".yaml")
		must(t, err)
		m := decodeOne(t, string(text))
		template := manifest.Template([]*manifest.Manifest{m})
		golden(t, "testdata/good/"+name+".template", string(template))
		var doc map[string]any
		must(t, yaml.Unmarshal(template, &doc))
		properties := doc["Resources"].(map[string]any)["Limits"].(map[string]any)["Properties"]
		handed, err := json.Marshal(texts(properties))
		must(t, err)
		if strings.Contains(string(handed), ":true") || strings.Contains(string(handed), ":5") {
			t.Fatalf("not as text: %s", handed)
		}
		back, err := manifest.FromTemplate(handed)
		if err != nil {
			t.Fatal(explain(err))
		}
		if back.Hash() != m.Hash() {
			t.Errorf("%s came back as\n%s", name, back.Text())
		}
	}
	if _, err := manifest.FromTemplate([]byte("{}")); err == nil {
		t.Error("no manifest is accepted")
	}
}

// texts turns everything except mappings and lists into text.
func texts(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for k, x := range v {
			out[k] = texts(x)
		}
		return out
	case []any:
		for i := range v {
			v[i] = texts(v[i])
		}
		return v
	}
	return fmt.Sprint(v)
}
