package arch_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

var (
	fenced  = regexp.MustCompile("(?s)(?:\\A|\n) *```.*?\n *```")
	code    = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *#*$`)
	link    = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	shown   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	text = fenced.ReplaceAllString(text, "")
	found := make(map[string]bool)
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, shown.ReplaceAllString(m[1], "$1"))
		name := slug
		for n := 1; found[name]; n++ {
			name = fmt.Sprint(slug, "-", n)
		}
		found[name] = true
	}
	return found
}

// broken returns the relative links of a document that lead nowhere: to no file of the tree, or to no heading of one.
func broken(tree fs.FS, name string) (found []string) {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return []string{err.Error()}
	}
	plain := code.ReplaceAllString(fenced.ReplaceAllString(string(text), ""), "")
	for _, m := range link.FindAllStringSubmatch(plain, -1) {
		file, section, _ := strings.Cut(m[1], "#")
		if strings.Contains(m[1], ":") {
			continue // an address
		}
		to := name
		if file != "" {
			to = path.Join(path.Dir(name), file)
		}
		target, err := fs.ReadFile(tree, to)
		if info, statErr := fs.Stat(tree, to); statErr == nil && info.IsDir() && section == "" {
			continue
		}
		if err != nil || section != "" && path.Ext(to) == ".md" && !anchors(string(target))[section] {
			found = append(found, name+": leads nowhere: "+m[1])
		}
	}
	return found
}

// Relative links in all documents lead to a file, and to a heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	tree, documents := os.DirFS(filepath.FromSlash(root)), 0
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (base[0] == '.' && base != ".github" || base == "testdata" || base == "node_modules"):
			return fs.SkipDir
		case path.Ext(name) == ".md":
			documents++
			for _, b := range broken(tree, name) {
				t.Error(b)
			}
		}
		return nil
	})
	if err != nil || documents < 40 {
		t.Fatalf("%d documents: %v", documents, err)
	}
}

func TestLinksCaught(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"docs/a.md": {Data: []byte("# One *two*, three\n\n## One\n\n## One\n\n```\n# not one\n[x](none.md)\n```\n\n`[x](none.md)`\n" +
			"[ok](b.md) [ok](b.md#b-_c-1) [ok](#one-two-three) [ok](#one-1) [ok](../docs) [ok](https://x/y) [ok](b.md \"title\")\n" +
			"[1](none.md) [2](b.md#none) [3](#one-2) [4](#not-one) ![5](img/none.svg) [6](/docs/b.md)\n")},
		"docs/b.md": {Data: []byte("# `b`: _c 1\n")},
	}
	if got := broken(tree, "docs/a.md"); len(got) != 6 {
		t.Errorf("found %q", got)
	}
}
