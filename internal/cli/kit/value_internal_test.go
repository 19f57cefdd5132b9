package kit

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestBadValue checks that what is wrong with a value is described without names of Go.
func TestBadValue(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--budget abc":                  `weir: --budget must be a whole number: "abc"`,
		"--budget 1.5":                  `weir: --budget must be a whole number: "1.5"`,
		"--budget 99999999999999999999": `weir: --budget is too large or too small: "99999999999999999999"`,
		"--wait 5":                      `weir: --wait must be a duration such as 30s or 72h: "5"`,
		"--total=maybe":                 `weir: --total must be true or false: "maybe"`,
	} {
		var errs bytes.Buffer
		r := New(nil, io.Discard, &errs, nil)
		cmd := &cobra.Command{Use: "show", RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.Flags().Int("budget", 0, "")
		cmd.Flags().Duration("wait", 0, "")
		cmd.Flags().Bool("total", false, "")
		root := r.Prepare(Group(&cobra.Command{Use: "weir"}, cmd))
		root.SetArgs(append([]string{"show"}, strings.Fields(args)...))
		if code := r.Execute(t.Context(), root); code != WrongUsage || !strings.HasPrefix(errs.String(), want+": see ") {
			t.Errorf("%s: code %d, %s", args, code, errs.String())
		}
	}
}
