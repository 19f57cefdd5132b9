package kit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/term"
)

// sample is a request with what commands need of fields.
type sample struct {
	ID    string            `json:"id" arg:"ID"`
	Rest  []string          `json:"rest" arg:"REST"`
	Name  *string           `json:"name"`
	Deep  bool              `json:"deep_down" flag:"deep-down,d"`
	Rate  int               `json:"rate" default:"20" range:"0.."`
	Tags  map[string]string `json:"tag"`
	Other string            `json:"other" flag:"-"`
	File  string            `json:"file" required:"true"`
}

func TestFunc(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, args, want, err string
	}{
		{name: "all", args: "a b c --name x -d --rate 5 --tag k=v --tag l=w --file f", want: "a [b c] x true 5 map[k:v l:w] f"},
		{name: "defaults", args: "a --file f", want: "a []  false 20 map[] f"},
		{name: "the last counts", args: "a --rate 1 --rate 2 --file f", want: "a []  false 2 map[] f"},
		{name: "argument missing", args: "--file f", err: "ID is missing: weir show ID [REST...]"},
		{name: "flag missing", args: "a", err: "--file is missing: see weir show --help"},
		{name: "bad number", args: "a --rate few --file f", err: `weir: --rate must be a whole number: "few"`},
		{name: "bad pair", args: "a --tag k --file f", err: `weir: --tag "k" is not KEY=VALUE`},
		{name: "no flag", args: "a --other x --file f", err: "unknown flag: --other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var errs bytes.Buffer
			r := New(nil, io.Discard, &errs, nil)
			got := ""
			root := r.Prepare(Group(&cobra.Command{Use: "weir"},
				Func(r, Spec{Use: "show ID [REST...]", Short: "Show"}, func(_ context.Context, q *sample) error {
					name := ""
					if q.Name != nil {
						name = *q.Name
					}
					got = fmt.Sprint(q.ID, " ", q.Rest, " ", name, " ", q.Deep, " ", q.Rate, " ", q.Tags, " ", q.File)
					return nil
				})))
			root.SetArgs(append([]string{"show"}, strings.Fields(tt.args)...))
			code := r.Execute(t.Context(), root)
			if want := map[bool]int{true: Done, false: WrongUsage}[tt.err == ""]; code != want {
				t.Errorf("code %d, want %d: %s", code, want, errs.String())
			}
			if got != tt.want || !strings.Contains(errs.String(), tt.err) {
				t.Errorf("%q, %q; want %q, %q", got, errs.String(), tt.want, tt.err)
			}
		})
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	const text = "delete {id}{deep_down? with its children}{other? of %q}"
	for want, q := range map[string]*sample{
		`delete "a"`:                                   {ID: "a"},
		`delete "a" with its children`:                 {ID: "a", Deep: true},
		`delete "a" with its children of resource "b"`: {ID: "a", Deep: true, Other: "b"},
	} {
		if got := fill(text, q); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	type row struct {
		name string
		n    int64
		more map[string]string
		At   *time.Time `json:"last_seen"`
	}
	v := Columns([]Column[row]{
		{Name: "name", Of: func(r *row) any { return r.name }},
		{Name: "n", Of: func(r *row) any { return r.n }},
		{Name: "more", Of: func(r *row) any { return r.more }, Long: true},
		{Name: "last seen"},
	})
	rows := []row{{"", 1, map[string]string{"b": "2", "a": "1"}, nil}, {"x", 2, nil, new(time.Unix(0, 0))}}
	for list, want := range map[bool]string{
		true:  "NAME\tN\tLAST SEEN\n-\t1\t-\nx\t2\t1970-01-01T00:00:00.000Z\n",
		false: "name\t-\nn\t1\nmore\ta=1\nmore\tb=2\n",
	} {
		var out bytes.Buffer
		r := New(nil, &out, io.Discard, nil)
		r.Out = term.New(&out, nil)
		v(r, rows[:map[bool]int{true: 2, false: 1}[list]], list)
		if out.String() != want {
			t.Errorf("list is %v:\n%swant\n%s", list, out.String(), want)
		}
	}
}
