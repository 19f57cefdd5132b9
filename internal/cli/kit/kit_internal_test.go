package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/term"
)

func newTestRun(in io.Reader) (a *Run, errs *bytes.Buffer) {
	errs = new(bytes.Buffer)
	return &Run{In: in, Out: term.New(io.Discard, nil), Err: term.New(errs, nil), Output: "json"}, errs
}

func TestCodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want int
	}{
		{errors.New("x"), Failed},
		{weir.ErrExists, Failed},
		{weir.ErrConflict, Failed},
		{context.Canceled, Failed},
		{UsageError{errors.New("x")}, WrongUsage},
		{&weir.ConfigError{Field: "f", Reason: "r"}, WrongUsage},
		{weir.ErrBadCursor, WrongUsage},
		{&weir.BurstError{}, WrongUsage},
		{&weir.ExceededError{}, Refused},
		{Quiet(weir.ErrExceeded), Refused},
		{WithCode(weir.ErrUnavailable, Failed), Failed},
		{weir.ErrNotFound, NotFound},
		{&weir.NoLimitsError{}, NotFound},
		{weir.ErrNoUsage, NotFound},
		{&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, NotFound},
		{weir.ErrUnavailable, Unavailable},
		{&weir.StoreError{Op: "open", Err: fs.ErrNotExist}, Unavailable},
	} {
		if got := CodeOf(fmt.Errorf("wrapped: %w", tt.err)); got != tt.want {
			t.Errorf("%T %v: code %d, want %d", tt.err, tt.err, got, tt.want)
		}
	}
}

func TestReportIsOneLine(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"table": "weir: one\\x1b[2J; \"two\"\n",
		"json":  `{"error":"one\\x1b[2J; \"two\"","exit":4}` + "\n",
		"yaml":  `{"error":"one\\x1b[2J; \"two\"","exit":4}` + "\n",
	} {
		a, errs := newTestRun(nil)
		a.Output = output
		report(t.Context(), a, errors.Join(errors.New("one\x1b[2J"), WithCode(errors.New(`"two"`), NotFound)))
		if got := errs.String(); got != want {
			t.Errorf("%s: %q, want %q", output, got, want)
		}
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]error{"y\n": nil, "YES\n": nil, " y": nil, "n\n": ErrCancelled, "\n": ErrCancelled, "": ErrCancelled, "yes please\n": ErrCancelled} {
		a, errs := newTestRun(strings.NewReader(answer))
		if err := ask(t.Context(), a, "delete it"); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", answer, err, want)
		}
		if errs.String() != "Delete it? [y/N] " {
			t.Errorf("asks %q", errs)
		}
	}
	in, out := io.Pipe() // no input ever arrives
	defer out.Close()
	a, _ := newTestRun(in)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx, a, "delete it"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1:                              "0s",
		0:                               "0s",
		1:                               "1ms",
		20*time.Millisecond + 1:         "21ms",
		5981 * time.Millisecond:         "6s",
		12340 * time.Millisecond:        "12.4s",
		60 * time.Second:                "1m",
		61*time.Second + 1:              "1m2s",
		2 * time.Hour:                   "2h",
		25*time.Hour + time.Millisecond: "25h0m1s",
		math.MaxInt64:                   "never",
	} {
		if got := Span(d); got != want {
			t.Errorf("span(%d) = %s, want %s", d, got, want)
		}
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(struct {
		Text  []string          `json:"text"`
		Empty []int             `json:"empty"`
		Map   map[string]string `json:"map"`
		None  *int              `json:"none"`
		Big   int64             `json:"big"`
		Part  float64           `json:"part"`
	}{
		Text: []string{"plain", "true", "17", "null", "2026-03-02", "a: b", "#x", "two\nlines", "日本", ""},
		Map:  map[string]string{"yes": "no"}, Empty: []int{}, Big: 1_000_000_000_000_000, Part: 0.25,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := toYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	const want = `text:
  - plain
  - "true"
  - "17"
  - "null"
  - "2026-03-02"
  - 'a: b'
  - '#x'
  - |-
    two
    lines
  - 日本
  - ""
empty: []
map:
  "yes": "no"
none: null
big: 1000000000000000
part: 0.25
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Error(d)
	}
}

// TestSwitch checks that a switch takes what flags of Go take, so that WEIR_…=1 works, and nothing else.
func TestSwitch(t *testing.T) {
	t.Parallel()
	type flags struct {
		Keep bool `json:"keep"`
	}
	for text, want := range map[string]bool{"true": true, "1": true, "t": true, "True": true, "false": false, "0": false} {
		f := flags{Keep: !want}
		v := &value{field: api.FieldsOf(reflect.TypeFor[flags]())[0], q: &f}
		if err := v.Set(text); err != nil || f.Keep != want {
			t.Errorf("%q: %t, error %v", text, f.Keep, err)
		}
	}
}
