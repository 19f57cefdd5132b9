package kit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/fleet/cells"
)

// Exit codes. Scripts rely on them.
const (
	Done        = 0
	Failed      = 1
	WrongUsage  = 2
	Refused     = 3
	NotFound    = 4
	Unavailable = 5
)

// UsageError is an error in how the command was called.
type UsageError struct{ error }

// Unwrap returns the error.
func (e UsageError) Unwrap() error { return e.error }

// Usage marks err as an error in how the command was called.
func Usage(err error) error { return UsageError{err} }

// Usagef returns an error in how the command was called.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

type quietError struct{ error }

func (e quietError) Unwrap() error { return e.error }

// Quiet marks an error that the printed result already shows: only its exit code counts.
func Quiet(err error) error { return quietError{err} }

type codeError struct {
	error
	code int
}

func (e codeError) Unwrap() error { return e.error }

// WithCode gives err an exit code of its own.
func WithCode(err error, code int) error { return codeError{err, code} }

// report prints an error on one line and returns the exit code.
func report(ctx context.Context, errs *term.Screen, err error) int {
	code := CodeOf(err)
	var quiet quietError
	if errors.As(err, &quiet) {
		return code
	}
	text := err.Error()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	errs.Println(errs.Bad("weir:") + " " + term.Clean(strings.ReplaceAll(text, "\n", "; ")))
	return code
}

// exits has the exit code of each code of the limiter.
var exits = [weir.Codes]int{
	weir.CodeOK:           Done,
	weir.CodeInternal:     Failed,
	weir.CodeInvalid:      WrongUsage,
	weir.CodeExceeded:     Refused,
	weir.CodeExceedsBurst: WrongUsage,
	weir.CodeNoLimits:     NotFound,
	weir.CodeNotFound:     NotFound,
	weir.CodeNoUsage:      NotFound,
	weir.CodeExists:       Failed,
	weir.CodeConflict:     Failed,
	weir.CodeSettled:      Failed,
	weir.CodeExpired:      Failed,
	weir.CodeUnavailable:  Unavailable,
	weir.CodeCanceled:     Failed,
}

// CodeOf returns the exit code of an error.
func CodeOf(err error) int {
	var usage UsageError
	var address stores.AddressError
	var coded codeError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage), errors.As(err, &address):
		return WrongUsage
	case errors.Is(err, cells.ErrNotFound):
		return NotFound
	}
	if code := exits[weir.CodeOf(err)]; code != Failed {
		return code
	}
	if errors.Is(err, fs.ErrNotExist) { // such as a log
		return NotFound
	}
	return Failed
}
