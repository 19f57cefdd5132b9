package kit

import (
	"fmt"

	"github.com/spf13/cobra"
)

// PageFlags are the flags of commands that list. Without --max they list everything.
type PageFlags struct {
	Max   int
	After string
}

func (p *PageFlags) Add(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().IntVar(&p.Max, "max", 0, "list at most `N` items and print the cursor to continue from; 0 lists all")
	cmd.Flags().StringVar(&p.After, "after", "", "continue after the `CURSOR` that the previous list printed")
	return cmd
}

const PageSize = 1000

// Collect fetches pages until it has the whole list, or p.max items.
func Collect[T any](p *PageFlags, fetch func(after string, size int) (items []T, next string, err error)) ([]T, string, error) {
	all := []T{} // an empty list in JSON, not null
	after := p.After
	for {
		size := PageSize
		if p.Max > 0 {
			size = min(size, p.Max-len(all))
		}
		items, next, err := fetch(after, size)
		if err != nil {
			return nil, "", err
		}
		all = append(all, items...)
		if next == "" || p.Max > 0 && len(all) >= p.Max {
			return all, next, nil
		}
		after = next
	}
}

// PageView is a list as printed.
type PageView[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// PrintPage prints a list and, if it was cut short, the cursor to continue from.
func PrintPage[T any](a *Run, items []T, next string, table func()) error {
	err := a.Print(PageView[T]{items, next}, table)
	return a.More(err, next)
}

// More prints the cursor to continue from, if there is one, to standard error beside a table.
func (a *Run) More(err error, next string) error {
	if err == nil && next != "" && a.Output == "table" {
		a.Err.Println("there are more: add --after", next)
	}
	return err
}

// Did reports what was done, in the requested output format.
func (a *Run) Did(format string, args ...any) error {
	return a.Print(map[string]string{"done": fmt.Sprintf(format, args...)}, func() { a.Out.Println(fmt.Sprintf(format, args...)) })
}
