// Package api declares the operations of weir that manage and inspect, each once: its route, who may call it, what it
// takes and returns, and what it does. The HTTP server's routes are made from these declarations, internal/cli names
// them in its commands, and package client runs them through a server.
package api

import (
	"context"
	"reflect"

	"github.com/weirlimits/weir"
)

// Op is an operation on a namespace or, if Need is ReadAll or AdminAll, on all of them.
type Op struct {
	Name, Method, Path string // "createEntity", "POST", "/v1/entities"
	Need               Need
	Creates            bool // may be the first write to a new store
	Raw                bool // the server answers it by hand; some run only there

	// Location returns the path of what a request has created. Nil means that it creates nothing.
	Location func(resp any) string

	request, response reflect.Type

	run func(ctx context.Context, lim *weir.Limiter, req any) (any, error)
}

// Need is the permission that an operation requires.
type Need int

// The permissions: a role in the namespace of the request, or in all namespaces.
const (
	Read Need = iota
	Admin
	ReadAll
	AdminAll
	Spend
	Credit
)

// Wide is a request that may reach beyond the namespace, and then needs the role in all of them.
type Wide interface{ Everywhere() bool }

// New returns a pointer to an empty request.
func (o *Op) New() any { return reflect.New(o.request).Interface() }

// NewResponse returns a pointer to an empty response.
func (o *Op) NewResponse() any { return reflect.New(o.response).Interface() }

// MayBeEmpty reports whether there may be nothing to return: if that is the operation's response, or after a change
// that may have left nothing to show.
func (o *Op) MayBeEmpty() bool {
	return o.response == reflect.TypeFor[None]() || o.Method != "GET" && o.response.Kind() == reflect.Pointer
}

// Fields returns the members of a request.
func (o *Op) Fields() []Field { return FieldsOf(o.request) }

// Run runs the operation on a limiter of the namespace. It takes a pointer to a request. A nil response means that
// there is nothing to return.
func (o *Op) Run(ctx context.Context, lim *weir.Limiter, req any) (any, error) {
	return o.run(ctx, lim, req)
}

// Of is an operation with the types of its request and response.
type Of[Q, R any] struct{ *Op }

// Caller runs operations: on a store, or through a server.
type Caller interface {
	Call(ctx context.Context, o *Op, req any) (resp any, err error)
}

// Call runs the operation through c. found is false if there is nothing to return.
func (o Of[Q, R]) Call(ctx context.Context, c Caller, req *Q) (resp R, found bool, err error) {
	v, err := c.Call(ctx, o.Op, req)
	resp, found = v.(R)
	return resp, found, err
}

// Local runs operations on a limiter.
type Local struct{ Limiter *weir.Limiter }

// Call implements [Caller].
func (l Local) Call(ctx context.Context, o *Op, req any) (any, error) {
	return o.Run(ctx, l.Limiter, req)
}

// None is the response of operations that return nothing.
type None struct{}

// List is a page of a list. Next, if set, is After for the next page.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// Page is the part of a request that selects a page.
type Page struct {
	Max   int    `json:"max" in:"query" range:"0.."`
	After string `json:"after" in:"query"`
}

// Cursor returns the page, for callers that read all pages of a request.
func (p *Page) Cursor() *Page { return p }

// declare makes an operation. A nil pointer from run means that there is nothing to return.
func declare[Q, R any](o Op, run func(ctx context.Context, lim *weir.Limiter, q *Q) (R, error)) Of[Q, R] {
	o.request, o.response = reflect.TypeFor[Q](), reflect.TypeFor[R]()
	o.run = func(ctx context.Context, lim *weir.Limiter, req any) (any, error) {
		resp, err := run(ctx, lim, req.(*Q)) //nolint:forcetypeassert // Of.Call and New make no other
		if v := reflect.ValueOf(resp); err != nil || v.Type() == reflect.TypeFor[None]() ||
			v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, err
		}
		return resp, nil
	}
	return Of[Q, R]{&o}
}

// pageOf makes a page of what a limiter listed.
func pageOf[T, U any](items []T, next string, convert func(T) U) List[U] {
	p := List[U]{Items: make([]U, len(items)), Next: next}
	for i := range items {
		p.Items[i] = convert(items[i])
	}
	return p
}

func same[T any](v T) T { return v }
