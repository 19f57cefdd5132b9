package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/cli/kit"
)

// TestTemplateSize: a template that CloudFormation refuses, or takes only from S3, is printed with a warning.
func TestTemplateSize(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		manifests, entities int
		warning             string
	}{
		"fits":          {2, 80, ""},
		"only from S3":  {1, 1000, "only from S3: at most 51200 bytes without"},
		"too large":     {1, 20_000, "CloudFormation refuses this template of"},
		"too many":      {501, 1, "501 resources: it takes at most 1048576 bytes and 500 resources"},
		"just not many": {500, 1, "only from S3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			for m := range tt.manifests {
				fmt.Fprintf(&text, "---\nnamespace: n%d\nentities:\n", m)
				for e := range tt.entities {
					fmt.Fprintf(&text, "  key-%d-%d: {resources: {gpt-4: {limits: {rpm: 60/min}}}}\n", m, e)
				}
			}
			file := filepath.Join(t.TempDir(), "limits.yaml")
			if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			a := kit.New(strings.NewReader(""), &out, &errs, nil)
			r := root(a)
			r.SetArgs([]string{"limits", "cfn-template", "-f", file})
			if code := a.Execute(t.Context(), r); code != 0 || out.Len() < tt.manifests*tt.entities*20 {
				t.Fatalf("exit code %d, %d bytes: %.500s", code, out.Len(), errs.String()[:min(900, errs.Len())])
			}
			if got := errs.String(); !strings.Contains(got, tt.warning) || tt.warning == "" && got != "" {
				t.Errorf("warning %q, want %q", got, tt.warning)
			}
		})
	}
}
