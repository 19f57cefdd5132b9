package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// pageFlags are the flags of commands that list. Without --max they list everything.
type pageFlags struct {
	max   int
	after string
}

func (p *pageFlags) add(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().IntVar(&p.max, "max", 0, "list at most `N` items and print the cursor to continue from; 0 lists all")
	cmd.Flags().StringVar(&p.after, "after", "", "continue after the `CURSOR` that the previous list printed")
	return cmd
}

const pageSize = 1000

// collect fetches pages until it has the whole list, or p.max items.
func collect[T any](p *pageFlags, fetch func(after string, size int) (items []T, next string, err error)) ([]T, string, error) {
	all := []T{} // an empty list in JSON, not null
	after := p.after
	for {
		size := pageSize
		if p.max > 0 {
			size = min(size, p.max-len(all))
		}
		items, next, err := fetch(after, size)
		if err != nil {
			return nil, "", err
		}
		all = append(all, items...)
		if next == "" || p.max > 0 && len(all) >= p.max {
			return all, next, nil
		}
		after = next
	}
}

// pageView is a list as printed.
type pageView[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// printPage prints a list and, if it was cut short, the cursor to continue from.
func printPage[T any](a *app, items []T, next string, table func()) error {
	err := a.print(pageView[T]{items, next}, table)
	return a.more(err, next)
}

// more prints the cursor to continue from, if there is one, to standard error beside a table.
func (a *app) more(err error, next string) error {
	if err == nil && next != "" && a.output == "table" {
		a.err.Println("there are more: add --after", next)
	}
	return err
}

// did reports what was done, in the requested output format.
func (a *app) did(format string, args ...any) error {
	return a.print(map[string]string{"done": fmt.Sprintf(format, args...)}, func() { a.out.Println(fmt.Sprintf(format, args...)) })
}
