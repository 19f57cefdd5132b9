package arch_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// unreachable returns the documents below docs that no links lead to from the README.
func unreachable(tree fs.FS) (found []string, err error) {
	reached := make(map[string]bool)
	for next := []string{"README.md"}; len(next) > 0; next = next[1:] {
		if name := next[0]; !reached[name] {
			reached[name] = true
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				return nil, err
			}
			for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
				file, _, _ := strings.Cut(m[1], "#")
				to := path.Join(path.Dir(name), file)
				if _, err := fs.Stat(tree, to); err == nil && path.Ext(to) == ".md" {
					next = append(next, to)
				}
			}
		}
	}
	err = fs.WalkDir(tree, "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" && !reached[name] {
			found = append(found, name)
		}
		return err
	})
	return found, err
}

// TestLinksReachAll checks that links lead from the README to every document.
func TestLinksReachAll(t *testing.T) {
	t.Parallel()
	found, err := unreachable(os.DirFS(filepath.FromSlash(root)))
	if err != nil || len(found) > 0 {
		t.Errorf("no link from the README leads to %q: list them in docs/README.md; error %v", found, err)
	}
}

func TestLinksReachAllCaught(t *testing.T) {
	t.Parallel()
	found, err := unreachable(fstest.MapFS{
		"README.md":      {Data: []byte("[index](docs/README.md#top) [code](a.go)")},
		"docs/README.md": {Data: []byte("[a](a.md) [up](../README.md)\n\n```\n[b](b.md)\n```\n")},
		"docs/a.md":      {Data: []byte("")},
		"docs/b.md":      {Data: []byte("")},
	})
	if err != nil || len(found) != 1 || found[0] != "docs/b.md" {
		t.Errorf("found %q, error %v", found, err)
	}
}
