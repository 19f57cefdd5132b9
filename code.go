package weir

import (
	"context"
	"errors"
	"slices"
)

// Code is the kind of an error, for callers that answer each kind in their own way, such as servers and command lines.
type Code uint8

// The codes. Later versions may add some.
const (
	CodeOK           Code = iota // no error
	CodeInternal                 // none of the others: an error that is not weir's
	CodeInvalid                  // the caller's mistake: a [*ConfigError], [ErrSlotsNeedLease] or [ErrBadCursor]
	CodeExceeded                 // [ErrExceeded]: a limit refused, retry later
	CodeExceedsBurst             // [ErrExceedsBurst]: more than can ever be spent at once
	CodeNoLimits                 // [ErrNoLimits]
	CodeNotFound                 // [ErrNotFound]
	CodeNoUsage                  // [ErrNoUsage]
	CodeExists                   // [ErrExists]
	CodeConflict                 // [ErrConflict]: nothing was changed, read again
	CodeSettled                  // [ErrSettled], [ErrCommitted] or [ErrRolledBack]: the lease, or its token, is used up
	CodeExpired                  // [ErrExpired]
	// [ErrUnavailable], a [*StoreError], [ErrClosed], [ErrOfCell] or a deadline: no answer, or not in time.
	CodeUnavailable
	CodeCanceled // [context.Canceled]: the caller gave up
	CodeMaxDebt  // [ErrMaxDebt]: an adjustment was made in part

	CodeUnknownEntity // [ErrUnknownEntity]
	CodeBucketQuota   // [ErrBucketQuota]

	// Codes is the number of codes, for tables with an entry for each.
	Codes = int(CodeBucketQuota) + 1
)

// codes has the code of each error, those that matter most to a caller first: a refusal before a failure of the store,
// and that before a mistake or a missing record.
var codes = []struct {
	is   func(error) bool
	code Code
}{
	{is(ErrExceeded), CodeExceeded},
	{is(ErrExceedsBurst), CodeExceedsBurst},
	{is(ErrMaxDebt), CodeMaxDebt},
	{is(ErrNoLimits), CodeNoLimits},
	{is(ErrUnknownEntity), CodeUnknownEntity},
	{is(ErrBucketQuota), CodeBucketQuota},
	{is(ErrSettled, ErrCommitted, ErrRolledBack), CodeSettled},
	{is(ErrExpired), CodeExpired},
	{is(ErrUnavailable, ErrClosed, ErrOfCell, context.DeadlineExceeded), CodeUnavailable},
	{as[*StoreError], CodeUnavailable},
	{is(context.Canceled), CodeCanceled},
	{is(ErrBadCursor, ErrSlotsNeedLease), CodeInvalid},
	{as[*ConfigError], CodeInvalid},
	{is(ErrNoUsage), CodeNoUsage},
	{is(ErrNotFound), CodeNotFound},
	{is(ErrExists), CodeExists},
	{is(ErrConflict), CodeConflict},
}

func is(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// CodeOf returns the code of an error. An error that matches several codes has the one that matters most to a caller: a
// refusal before a failure of the store, and that before a mistake or a missing record.
func CodeOf(err error) Code {
	if err == nil {
		return CodeOK
	}
	for _, c := range codes {
		if c.is(err) {
			return c.code
		}
	}
	return CodeInternal
}
