package arch_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	mostWords        = 30000 // of all pages
	mostWordsReadme  = 700
	mostWordsMean    = 16 // of a sentence
	fewestPagesFound = 50
)

var (
	htmlComment = regexp.MustCompile(`(?s)<!--.*?-->`)
	linkTarget  = regexp.MustCompile(`\]\([^)\n]*\)`)
	aWord       = regexp.MustCompile(`\S*[\pL\pN]\S*`)
	notProse    = regexp.MustCompile(`(?m)^ *(\||#|!\[| {4}).*$`) // tables, headings, pictures, indented examples
	aParagraph  = regexp.MustCompile(`\n\s*\n|\n *(?:[-*]|\d+\.) `)
	aSentence   = regexp.MustCompile(`[.!?][)"*_]*(?:\s+|$)`)
	inlineCode  = regexp.MustCompile("`[^`]*`")
)

// isHandwritten reports whether a document is a page that somebody writes and keeps up to date: references and benchmarks
// are generated, and decisions are records of their time.
func isHandwritten(name string) bool {
	return name == "README.md" || strings.HasPrefix(name, "docs/") && path.Ext(name) == ".md" &&
		name != "docs/benchmarks.md" && name != "docs/growth.md" &&
		!strings.HasPrefix(name, "docs/reference/") && !strings.HasPrefix(name, "docs/adr/")
}

// prose returns a page's text without fenced blocks, comments and the targets of links.
func prose(text string) string {
	return linkTarget.ReplaceAllString(fenced.ReplaceAllString(htmlComment.ReplaceAllString(text, ""), ""), "]")
}

func words(text string) int { return len(aWord.FindAllString(text, -1)) }

// sentences returns how many sentences a page's paragraphs and lists have, and how many words are in them. A piece of code
// is one word.
func sentences(text string) (n, inThem int) {
	for _, p := range aParagraph.Split(notProse.ReplaceAllString(text, "\n"), -1) {
		for _, s := range aSentence.Split(inlineCode.ReplaceAllString(p, "code"), -1) {
			if w := words(s); w > 0 {
				n++
				inThem += w
			}
		}
	}
	return n, inThem
}

// TestWords bounds what a reader of the pages has to read.
func TestWords(t *testing.T) {
	t.Parallel()
	pages, total, ended, inThem := 0, 0, 0, 0
	tree := os.DirFS(filepath.FromSlash(root))
	err := eachPage(tree, func(name, text string) {
		text = prose(text)
		n := words(text)
		if name == "README.md" && n > mostWordsReadme {
			t.Errorf("the README has %d words, at most %d are allowed", n, mostWordsReadme)
		}
		t.Logf("%6d %s", n, name)
		s, in := sentences(text)
		pages, total, ended, inThem = pages+1, total+n, ended+s, inThem+in
	})
	if err != nil || pages < fewestPagesFound {
		t.Fatalf("%d pages: %v", pages, err)
	}
	mean := float64(inThem) / float64(ended)
	t.Logf("%d pages, %d words, %.1f in a sentence", pages, total, mean)
	if total > mostWords {
		t.Errorf("%d words, at most %d are allowed: shorten a page, or link instead of repeating", total, mostWords)
	}
	if mean > mostWordsMean {
		t.Errorf("sentences have %.1f words on average, at most %d are allowed", mean, mostWordsMean)
	}
}

// eachPage calls do with each handwritten page.
func eachPage(tree fs.FS, do func(name, text string)) error {
	page := func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !isHandwritten(name) {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		do(name, string(text))
		return err
	}
	if err := page("README.md", nil, nil); err != nil {
		return err
	}
	return fs.WalkDir(tree, "docs", page)
}

func TestWordsCounted(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"README.md": {Data: []byte("# Two words\n\n<!-- not\nthese -->\nIt has [one link](not/this.md), and `a b`. Not\nmore!\n\n" +
			"```sh\nnone of this\n```\n\n| a | row |\n|---|---|\n\n- one. Two\n- three\n")},
		"docs/x.md":             {Data: []byte("x\n")},
		"docs/adr/1.md":         {Data: []byte("x\n")},
		"docs/reference/cli.md": {Data: []byte("x\n")},
		"docs/benchmarks.md":    {Data: []byte("x\n")},
	}
	var names []string
	err := eachPage(tree, func(name, text string) {
		names = append(names, name)
		if name != "README.md" {
			return
		}
		text = prose(text)
		if n := words(text); n != 16 {
			t.Errorf("%d words", n)
		}
		if n, in := sentences(text); n != 5 || in != 11 {
			t.Errorf("%d sentences of %d words", n, in)
		}
	})
	if got := strings.Join(names, " "); err != nil || got != "README.md docs/x.md" {
		t.Errorf("pages %s, error %v", got, err)
	}
}
