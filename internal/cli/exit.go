package cli

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/internal/term"
)

// Exit codes. Scripts rely on them.
const (
	done        = 0
	failed      = 1
	wrongUsage  = 2
	refused     = 3
	notFound    = 4
	unavailable = 5
)

// usageError marks an error in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// quietError marks an error that the printed result already shows.
type quietError struct{ error }

func (e quietError) Unwrap() error { return e.error }

// codeError is an error with an exit code of its own.
type codeError struct {
	error
	code int
}

func (e codeError) Unwrap() error { return e.error }

// report prints an error on one line and returns the exit code.
func (a *app) report(ctx context.Context, err error) int {
	code := codeOf(err)
	var quiet quietError
	if errors.As(err, &quiet) {
		return code
	}
	text := err.Error()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	a.err.Println(a.err.Bad("weir:") + " " + term.Clean(strings.ReplaceAll(text, "\n", "; ")))
	return code
}

func codeOf(err error) int {
	var usage usageError
	var config *weir.ConfigError
	var store *weir.StoreError
	var coded codeError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage), errors.As(err, &config), errors.Is(err, weir.ErrBadCursor), errors.Is(err, weir.ErrExceedsBurst):
		return wrongUsage
	case errors.Is(err, weir.ErrExceeded):
		return refused
	case errors.Is(err, weir.ErrNotFound), errors.Is(err, weir.ErrNoLimits), errors.Is(err, cells.ErrNotFound):
		return notFound
	case errors.Is(err, weir.ErrUnavailable), errors.As(err, &store):
		return unavailable
	case errors.Is(err, fs.ErrNotExist): // such as a log
		return notFound
	}
	return failed
}
