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

// The roles. Admin implies the others, which do not imply each other.
const (
	Acquire Role = "acquire" // spend tokens, adjust and roll back leases
	Read    Role = "read"    // view everything in a namespace
	Credit  Role = "credit"  // top up balances
	Admin   Role = "admin"   // change limits, entities, buckets and manifests
)

// Roles returns all roles.
func Roles() []Role { return []Role{Acquire, Read, Credit, Admin} }

// Permission is what no role includes. Each is off unless a token has it.
type Permission string

// The permissions.
const (
	Override Permission = "override" // bring limits of its own in a request
	Adjust   Permission = "adjust"   // debit an entity without a lease
	Return   Permission = "return"   // give back what no lease holds, and Envoy's descriptors did not take lately
	Envoy    Permission = "envoy"    // use Envoy's rate limit service
)

// Permissions returns all permissions.
func Permissions() []Permission { return []Permission{Override, Adjust, Return, Envoy} }

// All stands for all namespaces, including future ones.
const All = "*"

// Principal is the sender of a request. A nil Principal may do nothing.
type Principal struct {
	Name string // of its token; "" for [Anybody]

	key         key
	roles       []Role
	permissions []Permission
	namespaces  []string

	// What it is bound to: ids, and beginnings of ids that a * follows. Empty means that it is not bound.
	entities, resources []string
}

var anybody = &Principal{roles: []Role{Admin}, permissions: Permissions(), namespaces: []string{All}}

// Anybody returns the principal of every request when authentication is off. It may do everything.
func Anybody() *Principal { return anybody }

// Access is what a request needs.
type Access struct {
	Role      Role
	Namespace string // need not exist; All: the role in all of them, for what belongs to no namespace
	// Entity and Resource are all that the request concerns. "" means that it concerns all of the namespace, and
	// ID* all whose ids begin with ID. Of a decision, it is the entity that is named: that its parents are charged, and
	// shown, is how limits on them work.
	Entity, Resource string
	Permissions      []Permission
}

// In returns the access in another namespace.
func (a Access) In(namespace string) Access {
	a.Namespace = namespace
	return a
}

// May reports whether the principal has all that a request needs.
func (p *Principal) May(a Access) bool { return p.Lacks(a) == "" }

// Lacks returns what the principal lacks for a request, or "". Every check of a permission is made here.
func (p *Principal) Lacks(a Access) Reason {
	switch {
	case !p.Has(a.Role):
		return NoRole
	case !slices.Contains(p.namespaces, All) && !slices.Contains(p.namespaces, a.Namespace):
		return NoNamespace
	case !covered(p.entities, a.Entity):
		return NoEntity
	case !covered(p.resources, a.Resource):
		return NoResource
	case slices.ContainsFunc(a.Permissions, func(n Permission) bool { return !slices.Contains(p.permissions, n) }):
		return NoPermission
	}
	return ""
}

// covered reports whether a binding covers an id, or all ids with a beginning.
func covered(binding []string, id string) bool {
	return len(binding) == 0 || slices.ContainsFunc(binding, func(bound string) bool {
		prefix, many := strings.CutSuffix(bound, "*")
		return bound == id || many && strings.HasPrefix(id, prefix)
	})
}

// Has reports whether the principal has a role, in any namespace and for any entity: whether a request that needs it
// can pass at all.
func (p *Principal) Has(role Role) bool {
	return p != nil && (slices.Contains(p.roles, role) || slices.Contains(p.roles, Admin))
}

// Roles returns all roles of the principal. A principal with Admin has every role.
func (p *Principal) Roles() []Role {
	return slices.DeleteFunc(Roles(), func(r Role) bool { return !p.Has(r) })
}

// Permissions returns the permissions of the principal.
func (p *Principal) Permissions() []Permission {
	return slices.DeleteFunc(Permissions(), func(each Permission) bool {
		return p == nil || !slices.Contains(p.permissions, each)
	})
}

// Bound returns the entities and resources that the principal is bound to; none means all.
func (p *Principal) Bound() (entities, resources []string) {
	if p == nil {
		return nil, nil
	}
	return slices.Clone(p.entities), slices.Clone(p.resources)
}

// Namespaces returns the namespaces in which the principal has its roles. ["*"] means all, including future ones.
func (p *Principal) Namespaces() []string {
	switch {
	case p == nil:
		return nil
	case slices.Contains(p.namespaces, All):
		return []string{All}
	}
	return slices.Clone(p.namespaces)
}

// Namespace returns the namespace of a request that names none: the principal's if it is bound to exactly one, and
// otherwise the argument.
func (p *Principal) Namespace(otherwise string) string {
	if p != nil && len(p.namespaces) == 1 && p.namespaces[0] != All {
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
