package kit

import (
	"strings"

	"github.com/weirlimits/weir/internal/cli/term"
)

// PageSize is how many items a command reads at once.
const PageSize = 1000

// PageView is a list as printed.
type PageView[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// PrintPage prints a list, and what More prints beside it.
func PrintPage[T any](a *Run, items []T, next string, table func()) error {
	err := a.Print(PageView[T]{items, next}, table)
	return More(a, err, len(items), next)
}

// More prints to standard error, beside a table of so many items, the cursor to continue from, if there is one, or that
// the table is empty, and what it was selected by.
func More(a *Run, err error, items int, next string) error {
	switch {
	case err != nil || a.Output != "table":
	case next != "":
		a.Err.Println("there are more: add --after", next)
	case items == 0 && len(a.selected) > 0:
		a.Err.Println("nothing found for", term.Clean(strings.Join(a.selected, " ")))
	case items == 0:
		a.Err.Println("nothing found: the list is empty")
	}
	return err
}
