// Package admin manages what a limiter decides from (entities, limits, namespaces, manifests), and reads what was
// decided (buckets, usage, the audit log).
//
// # Errors
//
// Every method may return [*weir.ConfigError] for an invalid argument, [weir.ErrNotFound] if the namespace does not
// exist, and errors of the store. A list may return [weir.ErrBadCursor], and a change [weir.ErrConflict]. Methods name
// only what they return beyond that.
package admin

import (
	"context"
	"fmt"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy/record"
)

// Admin manages the namespace of a limiter, and the namespaces of its store. It is safe for concurrent use.
//
// A change takes effect at once for requests through the same limiter. Other processes follow within
// [weir.Config.CacheTTL]; they follow other limits also at the bucket's next debit.
type Admin struct {
	Entities   *Entities     // callers, and which of them charge a parent
	Limits     *Limits       // what entities may spend, and the settings stored with it
	Plans      *Plans        // limits that many entities have in common
	Namespaces *Namespaces   // of the store
	Manifests  *Manifests    // entities and limits as files declare them, and the revisions of these files
	Buckets    *Buckets      // what entities have left
	Balances   *Balances     // prepaid credits
	Usage      *UsageReports // what was spent, by whom, on what, and when
	Audit      *AuditLog     // who changed what
}

// New returns an Admin of the limiter's namespace. It shares the limiter's store and caches, does not access the store
// yet, and need not be closed.
func New(lim *weir.Limiter) *Admin {
	c := catalog{parts.Of(lim)}
	return &Admin{
		Entities: &Entities{c}, Limits: &Limits{catalog: c}, Plans: &Plans{c}, Namespaces: &Namespaces{c},
		Manifests: &Manifests{c}, Buckets: &Buckets{c}, Balances: &Balances{c},
		Usage: &UsageReports{c}, Audit: &AuditLog{c},
	}
}

// WithPrincipal returns a context in which changes are audited as made by name. Without one, they are audited as made
// by "unknown". Names are cut to 256 bytes.
func WithPrincipal(ctx context.Context, name string) context.Context {
	return record.WithPrincipal(ctx, name)
}

// WithSource returns a context in which changes are audited as requested from an address, cut to 256 bytes. Without
// one, the events have none.
func WithSource(ctx context.Context, address string) context.Context {
	return record.WithSource(ctx, address)
}

// Page is one page of a list. It may hold fewer items than requested, even none.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"` // selects the next page; "" on the last one
}

func configErr(field, format string, args ...any) *weir.ConfigError {
	return &weir.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func notFound(what, id string) error { return fmt.Errorf("%s %q: %w", what, id, weir.ErrNotFound) }

func checkID(field, id string) error { return publicError(record.CheckID(field, id)) }

// checkResource is checkID for a resource that may be empty, a group or the total.
func checkResource(id string) error {
	if id == "" {
		return nil
	}
	return publicError(record.CheckResource("resource", id))
}

// checkOptional is checkID for an id that may be empty.
func checkOptional(field, id string) error {
	if id == "" {
		return nil
	}
	return checkID(field, id)
}

// checkMax refuses a negative maximum of items in a page.
func checkMax(n int) error {
	if n < 0 {
		return configErr("max", "must not be negative: %d", n)
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
