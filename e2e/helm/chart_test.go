// Package helm_test renders and lints the chart in contrib/helm with Helm's own packages.
package helm_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const folder = "../../contrib/helm/weir"

// values reads a file of values, with some of its lines replaced.
func values(t *testing.T, file string, replace ...string) chartutil.Values {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replace); i += 2 {
		if !bytes.Contains(text, []byte(replace[i])) {
			t.Fatalf("%s has no %s", file, replace[i])
		}
	}
	v, err := chartutil.ReadValues([]byte(strings.NewReplacer(replace...).Replace(string(text))))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// render returns what helm template prints.
func render(t *testing.T, v chartutil.Values) (string, error) {
	t.Helper()
	chart, err := loader.LoadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "limits", Namespace: "edge", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, v, release, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := strings.TrimPrefix(strings.TrimSpace(files[name]), "---\n")
		for doc := range strings.SplitSeq(text, "\n---\n") {
			if _, err := chartutil.ReadValues([]byte(doc)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if text != "" {
			out.WriteString("---\n# " + name + "\n" + text + "\n")
		}
	}
	return out.String(), nil
}

func TestRender(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"small", "full"} {
		got, err := render(t, values(t, name+".values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		golden := "testdata/" + name + ".golden.yaml"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", golden, diff)
		}
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"small", "full"} {
		for _, m := range lint.All(folder, values(t, name+".values.yaml"), "edge", true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// What would not work, or would show a secret, is refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	const url = `"redis://redis:6379/0"`
	for _, tt := range []struct{ old, replacement, want string }{
		{"registry.example/weir", `""`, "image.repository"},
		{url, `""`, "store.url or store.existingSecret"},
		{url, url + ", existingSecret: {name: x}", "only one of"},
		{url, `"disk:weir-data"`, "one process alone"},
		{url, `"redis://:hunter2@redis:6379"`, "has a password"},
		{url, `"rediss+sentinel://me:hunter2@a,b/x"`, "has a password"},
		{"insecure: true", "insecure: false", "tls.existingSecret.name"},
		{"insecure: true", "auth: {existingSecret: {name: x}}", "tls.existingSecret.name"},
		{"insecure: true", "insecur: true", "insecur"},
	} {
		out, err := render(t, values(t, "small.values.yaml", tt.old, tt.replacement))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q\n%s", tt.replacement, err, tt.want, out)
		}
	}
}
