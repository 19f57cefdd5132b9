package migrate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/serve/envoy"
)

// command runs weir import, and returns the exit code and the output.
func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	a := kit.New(strings.NewReader(""), &o, &e, []string{"HOME=" + t.TempDir()})
	root := Cmd(a)
	a.Prepare(root)
	root.SetArgs(args)
	code = a.Execute(t.Context(), root)
	return code, o.String(), e.String()
}

func TestEnvoy(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	code, out, errs := command(t, "envoy", "testdata/envoy/config.yaml", "--mapping", file, "--namespace", "prod")
	text, err := os.ReadFile(file)
	if code != 0 || err != nil {
		t.Fatal(code, err, out, errs)
	}
	golden(t, "envoy/limits.yaml", out)
	golden(t, "envoy/stderr", errs)
	golden(t, "envoy/mapping.yaml", string(text))

	m, err := envoy.ReadMapping(strictyaml.Source{Name: "mapping.yaml", Text: text})
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{ // as envoyproxy/ratelimit counts them
		"user=bob":   "edge/user bob",
		"user=alice": "edge/user=alice alice", "user=health": "edge/user=health health",
		"path=/v1/a": "edge/path=/v1/* /v1/a", "path=/static/a": "edge/path=/static/* edge", "path=/v2": "",
		"generic_key=slow,remote_address=10.0.0.2": "edge/generic_key=slow/remote_address 10.0.0.2",
		"generic_key=slow,remote_address=10.0.0.1": "edge/generic_key=slow/remote_address=10.0.0.1 10.0.0.1",
		"generic_key=slow":                         "", "remote_address=10.0.0.2": "",
		"generic_key=v,x-api-key=k": "edge/generic_key/x-api-key v/key-8254c329a92850f6d539dd376f4816ee",
		"banned=404":                "edge/banned=404 404",
		"odd=x{":                    "edge/odd=x( x{",
	} {
		d, err := envoy.ParseDescriptor(given)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if target, ok := m.Target("edge", d); ok {
			got = target.Resource + " " + target.Entity
		}
		if got != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
}

func TestEnvoyMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	bad := `descriptors:
  - value: x
  - key: a
    rate_limit: {requests_per_unit: 1}
  - key: b
    rate_limit: {unit: fortnight, requests_per_unit: many}
`
	if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	mapping := filepath.Join(dir, "mapping.yaml")
	code, out, errs := command(t, "envoy", file, "--mapping", mapping)
	if code != kit.Failed || !strings.Contains(errs, "5 errors in") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	if _, err := os.Stat(mapping); err == nil {
		t.Error("wrote a mapping")
	}
	for _, want := range []string{"has no key", "has no unit", "is no unit", "domain is missing"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}
