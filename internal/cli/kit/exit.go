package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
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

// ErrorView is an error as printed with --output json or yaml.
type ErrorView struct {
	Error string `json:"error"`
	Exit  int    `json:"exit"`
}

// report prints an error on one line, in JSON unless the output is a table, and returns the exit code.
func report(ctx context.Context, a *Run, err error) int {
	code := CodeOf(err)
	if _, ok := errors.AsType[quietError](err); ok {
		return code
	}
	text := err.Error()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	text = term.Clean(secret.Redact(strings.ReplaceAll(text, "\n", "; ")))
	if line, err := json.Marshal(ErrorView{text, code}); err == nil && (a.Output == "json" || a.Output == "yaml") {
		a.Err.Println(string(line)) // which is YAML, too
		return code
	}
	a.Err.Println(a.Err.Bad("weir:") + " " + text)
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
	weir.CodeMaxDebt:      Refused,

	weir.CodeUnknownEntity: NotFound,
	weir.CodeBucketQuota:   Refused,
}

// CodeOf returns the exit code of an error.
func CodeOf(err error) int {
	var usage UsageError
	var address stores.AddressError
	var coded codeError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage), errors.As(err, &address), errors.Is(err, weir.ErrOfCell):
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
