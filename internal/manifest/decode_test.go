package manifest_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

var update = flag.Bool("update", false, "write testdata/**/*.golden")

// Merges that expand to more than a file could have written out end early.
func TestMergeBomb(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("namespace: a\nx-0: &m0 {rpm: {capacity: 5}}\n")
	for i := range 7 {
		fmt.Fprintf(&text, "x-%d: &m%[1]d {<<: [%s*m%d]}\n", i+1, strings.Repeat(fmt.Sprintf("*m%d, ", i), 40), i)
	}
	text.WriteString("resources: {r: {limits: *m7}}\n")
	_, err := manifest.Decode([]strictyaml.Source{{Name: "x", Text: []byte(text.String())}}, strictyaml.Options{})
	if err == nil || !strings.Contains(explain(err), "its aliases expand to too much text") {
		t.Error(err)
	}
}

// golden compares a text with a golden file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o600))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func decodeText(t testing.TB, text string) []*manifest.Manifest {
	t.Helper()
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "test.yaml", Text: []byte(text)}}, strictyaml.Options{})
	if err != nil {
		t.Fatalf("%s\n%v", text, explain(err))
	}
	return ms
}

// decodeOne decodes a text that contains one manifest.
func decodeOne(t testing.TB, text string) *manifest.Manifest {
	t.Helper()
	ms := decodeText(t, text)
	if len(ms) != 1 {
		t.Fatalf("%d manifests", len(ms))
	}
	return ms[0]
}

func explain(err error) string {
	var errs strictyaml.Errors
	if !errors.As(err, &errs) {
		return err.Error()
	}
	var b strings.Builder
	for _, d := range errs {
		b.WriteString(d.String() + "\n")
	}
	return b.String()
}

// The decoder reports everything that is wrong with each bad file, with its position.
func TestMessages(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 25 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			must(t, err)
			ms, err := manifest.Decode([]strictyaml.Source{{Name: filepath.Base(file), Text: text}}, strictyaml.Options{})
			if err == nil {
				t.Fatalf("accepted: %s", ms[0].Text())
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", explain(err))
		})
	}
}

// Good files, written in their shortest form, which declares the same.
func TestText(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			sources, err := strictyaml.Open([]string{file}, nil)
			must(t, err)
			ms, err := manifest.Decode(sources, strictyaml.Options{Set: map[string]string{}})
			if err != nil {
				t.Fatal(explain(err))
			}
			if len(ms) != 1 {
				t.Fatalf("%d manifests", len(ms))
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", string(ms[0].Text()))
			again := decodeOne(t, string(ms[0].Text()))
			if again.Hash() != ms[0].Hash() {
				t.Errorf("decoded again:\n%s", again.Text())
			}
		})
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	const text = "namespace: a\nvariables: {N: 5, M: {}}\nsystem: {limits: {rpm: {capacity: \"${N}\"}, tpm: {capacity: \"${M}\"}}}\n"
	src := []strictyaml.Source{{Name: "x", Text: []byte(text)}}
	env := func(name string) (string, bool) { return "70", name == "M" || name == "HOME" }
	ms, err := manifest.Decode(src, strictyaml.Options{Set: map[string]string{"N": "6K"}, Env: env})
	if err != nil {
		t.Fatal(explain(err))
	}
	want := "namespace: a\nsystem:\n  limits:\n    rpm: {capacity: 6000}\n    tpm: {capacity: 70}\n"
	if diff := cmp.Diff(want, string(ms[0].Text())); diff != "" {
		t.Error(diff)
	}
	_, err = manifest.Decode(src, strictyaml.Options{Set: map[string]string{"MM": "6"}, Env: env})
	if err == nil || !strings.Contains(explain(err), "did you mean M?") {
		t.Errorf("--set of a name that is not declared: %v", err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"b.yml", "a.yaml", "notes.txt", ".hidden.yaml", "sub/c.json"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("namespace: "+name[:1]), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	src, err := strictyaml.Open([]string{dir, filepath.Join(dir, "a.yaml"), "-"}, strings.NewReader("namespace: s"))
	must(t, err)
	var names []string
	for _, s := range src {
		names = append(names, strings.TrimPrefix(filepath.ToSlash(s.Name), filepath.ToSlash(dir)+"/")+"="+string(s.Text))
	}
	want := []string{"a.yaml=namespace: a", "b.yml=namespace: b", "sub/c.json=namespace: s", "stdin=namespace: s"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if _, err := strictyaml.Open([]string{filepath.Join(dir, "none")}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := strictyaml.Open([]string{t.TempDir()}, nil); err == nil {
		t.Error("a folder without manifests is accepted")
	}
}
