package kit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Checked is the result of checking a file, as printed.
type Checked struct {
	Valid  bool                     `json:"valid"`
	Errors []*strictyaml.Diagnostic `json:"errors"`
}

// Mistakes prints the errors in a file with their positions, and returns an error with their count. It returns any
// other error as it is.
func Mistakes(a *Run, err error) error {
	var all strictyaml.Errors
	if !errors.As(err, &all) {
		return err
	}
	printed := a.Print(Checked{false, all}, func() {
		for _, d := range all {
			for i, line := range strings.Split(d.String(), "\n") {
				line = term.Clean(line)
				if i == 0 {
					line = a.Out.Bold(line)
				}
				a.Out.Println(line)
			}
		}
	})
	files := make(map[string]bool)
	for _, d := range all {
		files[d.File] = true
	}
	where := all[0].File
	if len(files) > 1 {
		where = fmt.Sprintf("%d files", len(files))
	}
	return errors.Join(fmt.Errorf("%s in %s: nothing was read or written", Plural(len(all), "error"), where), printed)
}
