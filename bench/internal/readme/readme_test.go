package readme_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/weirlimits/weir/bench/internal/readme"
)

// TestREADME holds every figure of README to docs/benchmarks.md. cmd/peers -readme ../README.md -from ../docs/benchmarks.md
// mends it.
func TestREADME(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	table, err := readme.Table(page)
	if err != nil {
		t.Fatal(err)
	}
	has, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := readme.Replace(has, table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(has, want) {
		t.Errorf("README does not show what docs/benchmarks.md says, which is\n%s", table)
	}
	if n := bytes.Count(table, []byte("\n| ")); n < 8 {
		t.Errorf("%d rows are shown", n)
	}
}

const page = `# Benchmarks

| | |
|---|---|
| when | today |
| machine | 2 cores |

## Redis

About it.

| benchmark | | rate | spread | calls/op | failed | rate ratio |
|---|---|--:|--:|--:|--:|--:|
| 64 callers, 1 key | weir on Redis | 30/s | 1–50 |  |  |  |
|  | peer | 60/s | 60–60 |  | 7.0 % | 0.50 × |
| 64 callers, 10,000 keys | weir on Redis | 20/s | 1–50 | 1.00 |  |  |
`

func TestTable(t *testing.T) {
	t.Parallel()
	table, err := readme.Table([]byte(page))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Measured today, on 2 cores. ",
		"\n| Redis, 64 callers, one key | 30/s | peer 60/s (0.50 ×), 7.0 % failed |\n",
		"\n| Redis, 64 callers, 10,000 keys | 20/s, 1.00 calls/op |  |\n",
	} {
		if !strings.Contains(string(table), want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	if strings.Contains(string(table), "DynamoDB") {
		t.Errorf("parts that the page does not have are in\n%s", table)
	}
	if _, err := readme.Table([]byte(strings.ReplaceAll(page, "64 callers, 1 key", "one key"))); err == nil {
		t.Error("a row is gone, and that is no error")
	}
	if _, err := readme.Replace([]byte("# weir"), table); err == nil {
		t.Error("README has no place for it, and that is no error")
	}
}
