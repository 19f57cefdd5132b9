package kit

// PageSize is how many items a command reads at once.
const PageSize = 1000

// PageView is a list as printed.
type PageView[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// PrintPage prints a list and, if it was cut short, the cursor to continue from.
func PrintPage[T any](a *Run, items []T, next string, table func()) error {
	err := a.Print(PageView[T]{items, next}, table)
	return More(a, err, next)
}

// More prints the cursor to continue from, if there is one, to standard error beside a table.
func More(a *Run, err error, next string) error {
	if err == nil && next != "" && a.Output == "table" {
		a.Err.Println("there are more: add --after", next)
	}
	return err
}
