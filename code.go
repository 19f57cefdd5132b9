package weir

import (
	"context"
	"errors"
)

// Code is the kind of an error, for callers that answer each kind in their own way, such as servers and command lines.
type Code uint8

// The codes. Later versions may add some.
const (
	CodeOK           Code = iota // no error
	CodeInternal                 // none of the others: an error that is not weir's
	CodeInvalid                  // the caller's mistake: a [*ConfigError] or [ErrBadCursor]
	CodeExceeded                 // [ErrExceeded]: a limit refused, retry later
	CodeExceedsBurst             // [ErrExceedsBurst]: more than can ever be spent at once
	CodeNoLimits                 // [ErrNoLimits]
	CodeNotFound                 // [ErrNotFound]
	CodeNoUsage                  // [ErrNoUsage]
	CodeExists                   // [ErrExists]
	CodeConflict                 // [ErrConflict]: nothing was changed, read again
	CodeSettled                  // [ErrSettled], [ErrCommitted] or [ErrRolledBack]: the lease, or its token, is used up
	CodeExpired                  // [ErrExpired]
	// [ErrUnavailable], a [*StoreError], [ErrClosed] or a deadline: no answer, or not in time.
	CodeUnavailable
	CodeCanceled // [context.Canceled]: the caller gave up

	// Codes is the number of codes, for tables with an entry for each.
	Codes = int(CodeCanceled) + 1
)

// CodeOf returns the code of an error. An error that matches several codes has the one that matters most to a caller: a
// refusal before a failure of the store, and that before a mistake or a missing record.
func CodeOf(err error) Code {
	is := func(target error) bool { return errors.Is(err, target) }
	var (
		config *ConfigError
		failed *StoreError
	)
	switch {
	case err == nil:
		return CodeOK
	case is(ErrExceeded):
		return CodeExceeded
	case is(ErrExceedsBurst):
		return CodeExceedsBurst
	case is(ErrNoLimits):
		return CodeNoLimits
	case is(ErrSettled), is(ErrCommitted), is(ErrRolledBack):
		return CodeSettled
	case is(ErrExpired):
		return CodeExpired
	case is(ErrUnavailable), is(ErrClosed), is(context.DeadlineExceeded), errors.As(err, &failed):
		return CodeUnavailable
	case is(context.Canceled):
		return CodeCanceled
	case is(ErrBadCursor), errors.As(err, &config):
		return CodeInvalid
	case is(ErrNoUsage):
		return CodeNoUsage
	case is(ErrNotFound):
		return CodeNotFound
	case is(ErrExists):
		return CodeExists
	case is(ErrConflict):
		return CodeConflict
	}
	return CodeInternal
}
