package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// pageFlags are the flags of lists. Without --max a list is whole.
type pageFlags struct {
	max   int
	after string
}

func (p *pageFlags) add(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().IntVar(&p.max, "max", 0, "list at most `N`, and say how to go on; 0 lists all")
	cmd.Flags().StringVar(&p.after, "after", "", "go on after the `CURSOR` that the list before ended with")
	return cmd
}

const pageSize = 1000

// collect fetches pages until the list, or what is wanted of it, is complete.
func collect[T any](p *pageFlags, fetch func(after string, size int) (items []T, next string, err error)) ([]T, string, error) {
	all := []T{} // not nil: an empty list in JSON
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

// pageView is a list as it is printed.
type pageView[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// printPage writes a list, and where to go on if it was cut.
func printPage[T any](a *app, items []T, next string, table func()) error {
	err := a.print(pageView[T]{items, next}, table)
	return a.more(err, next)
}

// more says on a terminal, or beside a table in a pipe, where to go on.
func (a *app) more(err error, next string) error {
	if err == nil && next != "" && a.output == "table" {
		a.err.Println("there is more: add --after", next)
	}
	return err
}

// did says what was done, in the form that was asked for.
func (a *app) did(format string, args ...any) error {
	return a.print(map[string]string{"done": fmt.Sprintf(format, args...)}, func() { a.out.Println(fmt.Sprintf(format, args...)) })
}
