package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPages(t *testing.T) { // sets the date of the pages, so not in parallel
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	file, again := filepath.Join(t.TempDir(), "man.tar.gz"), filepath.Join(t.TempDir(), "man.tar.gz")
	if err := errors.Join(run([]string{file}), run([]string{again})); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(file)
	second, err2 := os.ReadFile(again)
	if err := errors.Join(err, err2); err != nil || !bytes.Equal(first, second) {
		t.Fatalf("two runs differ, error %v", err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for from := tar.NewReader(zip); ; {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(page)
	}
	for name, want := range map[string]string{
		"man1/weir.1":              `max\-shards, \[u2026]`,
		"man1/weir-serve.1":        `\-\-grpc HOST:PORT`,
		"man1/weir-limits-apply.1": "manifest",
	} {
		if !strings.Contains(all[name], want) || !strings.Contains(all[name], " 1 2026-01-01 weir\n") {
			t.Errorf("%s has no %q, or another date:\n%.500s", name, want, all[name])
		}
	}
	if len(all) < 60 {
		t.Errorf("only %d pages", len(all))
	}
	if run(nil) == nil {
		t.Error("no file, no error")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if run([]string{file}) == nil {
		t.Error("no date, no error")
	}
}
