package manifest_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// FuzzDecode asserts that the decoder fails only with its own errors, each of which can be shown, and that what it accepts
// can be written and read again.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/bad/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte("a: &a [*a]\nnamespace: *a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ms, err := manifest.Decode([]strictyaml.Source{{Name: "f", Text: text}}, strictyaml.Options{})
		var errs strictyaml.Errors
		if err != nil && (!errors.As(err, &errs) || len(errs) == 0) {
			t.Fatalf("%T: %v", err, err)
		}
		for _, d := range errs {
			if d.Line < 1 || d.Column < 1 || d.Message == "" || d.String() == "" {
				t.Fatalf("%+v", d)
			}
		}
		for _, m := range ms {
			written := m.Text()
			again, err := manifest.Decode([]strictyaml.Source{{Name: "g", Text: written}}, strictyaml.Options{})
			if err != nil {
				t.Fatalf("written:\n%s\n%s", written, explain(err))
			}
			if !bytes.Equal(again[0].Text(), written) {
				t.Fatalf("written\n%s\nand again\n%s", written, again[0].Text())
			}
		}
	})
}
