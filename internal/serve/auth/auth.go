// Package auth determines who a request comes from and what it may do.
//
// A [Book] holds the tokens of a file and finds the [Principal] of a token, which a server checks before it does
// anything. A nil principal may do nothing, so an entry point that forgets to authenticate is closed, not open.
// Without authentication, on the loopback address, every caller is [Anybody].
package auth

import (
	"slices"
	"strings"
)

// Role is a set of operations that a token may perform in its namespaces.
type Role string

// The roles. Admin implies the others; Acquire and Read do not imply each other.
const (
	Acquire Role = "acquire" // spend tokens, adjust and roll back leases
	Read    Role = "read"    // view everything in a namespace
	Admin   Role = "admin"   // change limits, entities, buckets and manifests
)

// Roles returns all roles.
func Roles() []Role { return []Role{Acquire, Read, Admin} }

// every stands for all namespaces, including future ones.
const every = "*"

// Principal is the sender of a request. A nil Principal may do nothing.
type Principal struct {
	Name string // of its token; "" for [Anybody]

	roles      []Role
	namespaces []string
}

var anybody = &Principal{roles: []Role{Admin}, namespaces: []string{every}}

// Anybody returns the principal of every request when authentication is off. It may do everything.
func Anybody() *Principal { return anybody }

// Has reports whether the principal has a role, in any namespaces.
func (p *Principal) Has(role Role) bool {
	return p != nil && (slices.Contains(p.roles, role) || slices.Contains(p.roles, Admin))
}

// May reports whether the principal has a role in a namespace, which need not exist.
func (p *Principal) May(role Role, namespace string) bool {
	return p.Has(role) && (slices.Contains(p.namespaces, namespace) && namespace != every ||
		slices.Contains(p.namespaces, every))
}

// Everywhere reports whether the principal has a role in all namespaces, and so for what belongs to no namespace.
func (p *Principal) Everywhere(role Role) bool {
	return p.Has(role) && slices.Contains(p.namespaces, every)
}

// Roles returns all roles of the principal. A principal with Admin has every role.
func (p *Principal) Roles() []Role {
	return slices.DeleteFunc(Roles(), func(r Role) bool { return !p.Has(r) })
}

// Namespaces returns the namespaces in which the principal has its roles. ["*"] means all, including future ones.
func (p *Principal) Namespaces() []string {
	switch {
	case p == nil:
		return nil
	case slices.Contains(p.namespaces, every):
		return []string{every}
	}
	return slices.Clone(p.namespaces)
}

// Namespace returns the namespace of a request that names none: the principal's if it is bound to exactly one, and
// otherwise the argument.
func (p *Principal) Namespace(otherwise string) string {
	if p != nil && len(p.namespaces) == 1 && p.namespaces[0] != every {
		return p.namespaces[0]
	}
	return otherwise
}

// Audit returns the name to record in audit events: token:NAME, or the argument if nobody is authenticated.
func (p *Principal) Audit(anybody string) string {
	if p == nil || p.Name == "" {
		return anybody
	}
	return "token:" + p.Name
}

// Bearer returns the token in the values of a request's Authorization field, or "". A request with two values has
// none, because a proxy may have checked the other one.
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
