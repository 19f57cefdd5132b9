// Package auth says who a request comes from and what it may do.
//
// A [Book] holds the tokens of a file. Whoever answers requests asks it for the [Principal] of a token, puts that into
// the request's context with [With], and asks the principal before anything is done. A context without a principal has
// one that may do nothing: a way in that forgets to authenticate is closed, not open. Where nobody is authenticated,
// on the loopback address, everyone is [Anybody], and that is put into the context, too.
package auth

import (
	"context"
	"slices"
	"strings"
)

// Role is a kind of things that a token may do in its namespaces.
type Role string

// The roles. Admin implies the others; Acquire and Read do not imply each other.
const (
	Acquire Role = "acquire" // spend tokens, adjust and roll back leases
	Read    Role = "read"    // look at all there is in a namespace
	Admin   Role = "admin"   // change limits, entities, buckets and manifests
)

// Roles are all roles.
func Roles() []Role { return []Role{Acquire, Read, Admin} }

// every stands for all namespaces, now and later.
const every = "*"

// Principal is who a request comes from. A nil one may do nothing.
type Principal struct {
	Name string // of its token; "" is anybody

	roles      []Role
	namespaces []string
}

var anybody = &Principal{roles: []Role{Admin}, namespaces: []string{every}}

// Anybody is what everyone is where nobody is authenticated: it may do everything.
func Anybody() *Principal { return anybody }

// Has reports whether the principal has a role, in whatever namespaces.
func (p *Principal) Has(role Role) bool {
	return p != nil && (slices.Contains(p.roles, role) || slices.Contains(p.roles, Admin))
}

// May reports whether the principal has a role in a namespace, which need not exist.
func (p *Principal) May(role Role, namespace string) bool {
	return p.Has(role) && (slices.Contains(p.namespaces, namespace) && namespace != every || slices.Contains(p.namespaces, every))
}

// Everywhere reports whether the principal has a role in all namespaces, and so for what belongs to none.
func (p *Principal) Everywhere(role Role) bool {
	return p.Has(role) && slices.Contains(p.namespaces, every)
}

// Roles returns all that the principal has: who has Admin has every one.
func (p *Principal) Roles() []Role {
	return slices.DeleteFunc(Roles(), func(r Role) bool { return !p.Has(r) })
}

// Namespaces returns those in which the principal has its roles: ["*"] is all, now and later.
func (p *Principal) Namespaces() []string {
	switch {
	case p == nil:
		return nil
	case slices.Contains(p.namespaces, every):
		return []string{every}
	}
	return slices.Clone(p.namespaces)
}

// Namespace returns the namespace of a request that names none: the principal's if it is bound to exactly one, else
// otherwise.
func (p *Principal) Namespace(otherwise string) string {
	if p != nil && len(p.namespaces) == 1 && p.namespaces[0] != every {
		return p.namespaces[0]
	}
	return otherwise
}

// Audit returns the name under which changes are audited: token:NAME, or anybody where nobody is authenticated.
func (p *Principal) Audit(anybody string) string {
	if p == nil || p.Name == "" {
		return anybody
	}
	return "token:" + p.Name
}

type key struct{}

// With returns a context of a request that comes from a principal.
func With(ctx context.Context, p *Principal) context.Context { return context.WithValue(ctx, key{}, p) }

// From returns the principal of a request: nil, who may do nothing, if none was set.
func From(ctx context.Context) *Principal {
	p, _ := ctx.Value(key{}).(*Principal)
	return p
}

// Bearer returns the token of a request with these values of the field Authorization, or "": also of one that has two, of
// which a proxy may have looked at another.
func Bearer(authorization []string) string {
	if len(authorization) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}
