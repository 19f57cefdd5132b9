// Package admin changes and lists what the decisions of a limiter are made from, and what was decided.
package admin

import (
	"fmt"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy/record"
)

// Admin manages the namespace of a limiter. It is safe for concurrent use.
type Admin struct {
	Usage *UsageReports // what was spent, by whom, on what, and when
}

// New returns an Admin of the limiter's namespace. It shares the limiter's store and caches, does not access the store
// yet, and need not be closed.
func New(lim *weir.Limiter) *Admin {
	return &Admin{Usage: &UsageReports{parts.Of(lim)}}
}

func configErr(field, format string, args ...any) *weir.ConfigError {
	return &weir.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func checkID(field, id string) error {
	if err := record.CheckID(field, id); err != nil {
		return publicError(err)
	}
	return nil
}

// publicError returns the error as the package weir defines it.
func publicError(err error) error {
	if bad, ok := err.(*record.FieldError); ok { //nolint:errorlint // one that is wrapped is not the caller's
		return &weir.ConfigError{Field: bad.Field, Reason: bad.Reason}
	}
	return err
}
