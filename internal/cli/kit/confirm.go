package kit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirlimits/weir/internal/cli/term"
)

// ErrCancelled is the error of a question that was not answered with yes.
var ErrCancelled = errors.New("cancelled: nothing was changed")

// Confirm asks at the terminal whether to go ahead. Without a terminal, --yes is required.
func Confirm(ctx context.Context, a *Run, yes bool, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if yes {
		return nil
	}
	if !term.IsTerminal(a.In) {
		return Usagef("cannot ask whether to %s, because standard input is not a terminal: add --yes", what)
	}
	return ask(ctx, a, what)
}

func ask(ctx context.Context, a *Run, what string) error {
	a.Err.Printf("%s? [y/N] ", strings.ToUpper(what[:1])+what[1:])
	text, err := Answer(ctx, a)
	if text = strings.ToLower(text); err == nil && text != "y" && text != "yes" {
		err = ErrCancelled
	}
	return err
}

// Answer reads a line from the terminal.
func Answer(ctx context.Context, a *Run) (string, error) {
	answer := make(chan string, 1)
	go func() { // a read from a terminal cannot be cancelled
		line, _ := bufio.NewReader(a.In).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		a.Err.Println()
		return "", ctx.Err()
	case text := <-answer:
		return text, nil
	}
}
