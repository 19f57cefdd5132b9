package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// TestListed lists this test program, as it is and zipped, and compares the list with what Go knows of itself.
func TestListed(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	w, err := z.Create("bootstrap")
	if err == nil {
		_, err = w.Write(content)
	}
	if err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	zipped := filepath.Join(t.TempDir(), "x.zip")
	if err := os.WriteFile(zipped, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("this program does not know its modules")
	}
	var first string
	for _, paths := range [][]string{{program}, {program, zipped}} {
		var out bytes.Buffer
		if err := run(&out, paths); err != nil {
			t.Fatal(err)
		}
		var got bom
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Components) != 1+len(info.Deps) || len(got.Metadata.Component.Hashes) != 1 || got.Format != "CycloneDX" {
			t.Errorf("%s", &out)
		}
		if std := part("library", "std", strings.TrimPrefix(info.GoVersion, "go")); !strings.Contains(out.String(), std.PURL+`"`) {
			t.Errorf("%s is not listed", std.PURL)
		}
		for _, m := range info.Deps {
			if !strings.Contains(out.String(), `"`+part("library", m.Path, m.Version).PURL+`"`) {
				t.Errorf("%s is not listed", m.Path)
			}
		}
		if first == "" {
			first = out.String()
		}
		if out.String() != first {
			t.Error("the zipped program has other parts")
		}
	}
}

func TestUnlisted(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, paths := range [][]string{nil, {text}, {text + "x"}} {
		if err := run(&bytes.Buffer{}, paths); err == nil {
			t.Errorf("%q: a list was made", paths)
		}
	}
}

func TestPart(t *testing.T) {
	t.Parallel()
	got := part("library", "github.com/BurntSushi/toml", "v1.0.0+incompatible")
	if want := "pkg:golang/github.com/burntsushi/toml@v1.0.0%2Bincompatible"; got.PURL != want || got.Name != "github.com/BurntSushi/toml" {
		t.Errorf("%+v, want the URL %s", got, want)
	}
}
