package weir

import "github.com/weirlimits/weir/internal/policy/held"

// Tokens maps the names of limits to amounts: Tokens{"rpm": 1, "tpm": 500}.
type Tokens map[string]int64

// Request is a request of an entity for tokens on a resource.
type Request struct {
	// 1 to 256 bytes of UTF-8, no control characters; not _, _default_, _total_, wcu, nor what begins with _group_.
	Entity, Resource string
	// Tokens are amounts by limit name. A limit that applies but is not named is debited 0, and refuses while it is in
	// debt; of one of slots, a request takes 1, unless it names another number. A name that is not a limit of the
	// entity, or of a parent that is charged, is an error.
	Tokens Tokens
	// Requests is the amount to debit from each limit that applies, is not named in Tokens, and counts requests: one
	// named rps, rpm, rph, rpd or requests. If there is none, it is an error. Defaults to 0.
	Requests int64
	// Limits, if not empty, replace the entity's own limits for this call only. They do not replace its parents'
	// limits, and are never stored. Calls that pass an equal limit share its state; a bucket holds at most 16 different
	// ones at a time. Their Enforce must be [EnforceOn].
	Limits []Limit
	// OnUnavailable is how to decide when the store does not answer, if that is stricter than the setting stored with
	// the limits (see admin.Limits.SetOnUnavailable) or, if there is none, than [Config.OnUnavailable]:
	// [OnUnavailableDeny] is stricter than [OnUnavailableLocal], and that than [OnUnavailableAllow]. A less strict one
	// has no effect. Defaults to that setting.
	OnUnavailable OnUnavailable
	// ID, which only [Limiter.Adjust] takes, applies an adjustment at most once: for an hour, any other with this ID,
	// of the same entity on the same resource, changes nothing and returns [ErrSettled]. Defaults to none.
	ID string
}

// usesOwn reports whether the entity's own limits apply to the request.
func (req *Request) usesOwn() bool { return len(req.Limits) == 0 }

// demand returns what the request needs.
func (req *Request) demand() *held.Demand {
	return &held.Demand{Entity: req.Entity, Resource: req.Resource, Tokens: req.Tokens, Requests: req.Requests}
}

// OnUnavailable determines how a request is decided when the store does not answer.
type OnUnavailable string

// The ways to decide when the store does not answer.
const (
	OnUnavailableDefault OnUnavailable = ""      // the next more general setting
	OnUnavailableDeny    OnUnavailable = "deny"  // refuse with ErrUnavailable
	OnUnavailableAllow   OnUnavailable = "allow" // admit, marked degraded
	// OnUnavailableLocal admits from this process's share of the limits, marked degraded, and charges the admitted
	// tokens to the store once it answers again; see [Config.Instances]. If nothing is known of an entity, the limits
	// of the resource or the system apply. If those are not known either, the request is refused.
	OnUnavailableLocal OnUnavailable = "local"
)

func (u OnUnavailable) validate(field string) error {
	switch u {
	case OnUnavailableDefault, OnUnavailableDeny, OnUnavailableAllow, OnUnavailableLocal:
		return nil
	}
	return configErr(field, "must be deny, allow or local: %q", string(u))
}
