package server

import (
	"net/http"

	"github.com/weirlimits/weir"
)

// scopeJSON is the limits of a scope.
type scopeJSON struct {
	Entity        string           `json:"entity,omitempty"`
	Resource      string           `json:"resource,omitempty"`
	Source        weir.Source      `json:"source"`
	Limits        []weir.Limit     `json:"limits"`
	OnUnavailable weir.Unavailable `json:"on_unavailable,omitempty"`
	NearLimit     weir.Thresholds  `json:"near_limit,omitzero"`
	Managed       *weir.Managed    `json:"managed,omitempty"`
}

func scopeOf(l weir.ScopedLimits) scopeJSON {
	j := scopeJSON{l.Scope.Entity, l.Scope.Resource, l.Source, l.Limits, l.OnUnavailable, l.NearLimit, l.Managed}
	if j.Limits == nil {
		j.Limits = []weir.Limit{}
	}
	return j
}

// scope reads whose limits a request is about: entity and resource, one of them, or neither: the system's.
func (q query) scope() weir.Scope {
	return weir.Scope{Entity: q.Get("entity"), Resource: q.Get("resource")}
}

func (s *Server) showLimits(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "entity", "resource")
	if err != nil {
		return err
	}
	return replyScope(w, r, q, q.scope())
}

func replyScope(w http.ResponseWriter, r *http.Request, q query, scope weir.Scope) error {
	l, err := q.lim.Limits(r.Context(), scope)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, scopeOf(l))
}

// setLimitsOf replaces all limits of a scope.
func (s *Server) setLimitsOf(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r, "entity", "resource")
	if err != nil {
		return err
	}
	var limits []weir.Limit
	err = decode(r, []string{"limits"}, func(sc *scanner, name string) (err error) {
		limits, err = sc.limits(name)
		return err
	})
	if err != nil {
		return err
	}
	if err := q.lim.SetLimits(r.Context(), q.scope(), limits...); err != nil {
		return err
	}
	return replyScope(w, r, q, q.scope())
}

func (s *Server) deleteLimits(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r, "entity", "resource")
	if err != nil {
		return err
	}
	return done(w, q.lim.DeleteLimits(r.Context(), q.scope()))
}

func (s *Server) listLimits(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "entity", "resource", "after", "max")
	if err != nil {
		return err
	}
	return limitsPage(w, r, q, weir.LimitsQuery{Entity: q.Get("entity"), Resource: q.Get("resource"), After: q.Get("after"), Max: q.max})
}

func (s *Server) listResources(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "after", "max")
	if err != nil {
		return err
	}
	return limitsPage(w, r, q, weir.LimitsQuery{After: q.Get("after"), Max: q.max})
}

func limitsPage(w http.ResponseWriter, r *http.Request, q query, lq weir.LimitsQuery) error {
	p, err := q.lim.ListLimits(r.Context(), lq)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(p.Limits, p.Next, scopeOf))
}

func (s *Server) showSystem(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r)
	if err != nil {
		return err
	}
	return replyScope(w, r, q, weir.Scope{})
}

// setSystem sets the namespace's settings; its limits are set as those of the empty scope.
func (s *Server) setSystem(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r)
	if err != nil {
		return err
	}
	var u *weir.Unavailable
	var near *weir.Thresholds
	err = decode(r, []string{"on_unavailable", "near_limit"}, func(sc *scanner, name string) (err error) {
		if name == "near_limit" {
			near, err = pointer(sc.thresholds(name))
		} else {
			u, err = pointer(sc.unavailable(name))
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case u == nil && near == nil:
		return badField("body", "sets nothing: on_unavailable, deny, allow or local; near_limit, percentages")
	}
	if near != nil {
		if err := near.Validate(); err != nil { // before anything is set
			return err
		}
	}
	if u != nil {
		if err := q.lim.SetOnUnavailable(r.Context(), *u); err != nil {
			return err
		}
	}
	if near != nil {
		if err := q.lim.SetNearLimit(r.Context(), *near); err != nil {
			return err
		}
	}
	return replyScope(w, r, q, weir.Scope{})
}

// thresholds reads percentages, or "default".
func (s *scanner) thresholds(field string) (weir.Thresholds, error) {
	if s.peek() == '"' {
		if t, err := s.text(field); err != nil || t != "default" {
			return nil, badField(field, "must be an array of percentages, or \"default\"")
		}
		return nil, nil
	}
	t := weir.Thresholds{}
	err := s.list(field, func(int) error {
		n, err := s.integer(field)
		t = append(t, int(max(0, min(n, 1000)))) // what is out of range is refused, whatever it is
		return err
	})
	return t, err
}

func (s *Server) refresh(w http.ResponseWriter, r *http.Request) error {
	if err := noBody(r); err != nil {
		return err
	}
	s.cfg.Limiter.Refresh()
	return done(w, nil)
}
