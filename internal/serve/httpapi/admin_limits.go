package httpapi

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"

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
	ETag          string           `json:"etag"`
}

func scopeOf(l weir.ScopedLimits) scopeJSON {
	j := scopeJSON{l.Scope.Entity, l.Scope.Resource, l.Source, l.Limits, l.OnUnavailable, l.NearLimit, l.Managed, ""}
	if j.Limits == nil {
		j.Limits = []weir.Limit{}
	}
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(j) // cannot fail: it writes to memory
	j.ETag = strconv.FormatUint(h.Sum64(), 16)
	return j
}

// quoted returns an entity tag as it is written in headers.
func quoted(etag string) string { return `"` + etag + `"` }

// madeFrom checks the preconditions of a request: If-Match, that the limits are still the ones it was based on, or
// If-None-Match: *, that there are none. It returns the current limits, or nil if the request has no precondition.
func (q query) madeFrom(r *http.Request) (*weir.ScopedLimits, error) {
	match, none := r.Header.Values("If-Match"), r.Header.Values("If-None-Match")
	switch {
	case len(match)+len(none) == 0:
		return nil, nil //nolint:nilnil // no precondition
	case len(match) > 0 && len(none) > 0:
		return nil, badField("If-Match", "and If-None-Match exclude each other")
	case len(none) > 0 && (len(none) > 1 || none[0] != "*"):
		return nil, badField("If-None-Match", "must be *: that there are no limits yet")
	}
	now, err := q.lim.Limits(r.Context(), q.scope())
	exists := err == nil
	if err != nil && !errors.Is(err, weir.ErrNotFound) {
		return nil, err
	}
	if now.Scope = q.scope(); len(none) > 0 {
		if exists {
			return nil, errTaken
		}
		return &now, nil
	}
	want := quoted(scopeOf(now).ETag)
	for tag := range strings.SplitSeq(strings.Join(match, ","), ",") {
		if tag = strings.TrimSpace(tag); exists && (tag == want || tag == "*") {
			return &now, nil
		}
	}
	return nil, errStale
}

// stale turns a conflict into errStale, which says that the limits have changed since the request was made.
func stale(err error) error {
	if errors.Is(err, weir.ErrConflict) {
		return errStale
	}
	return err
}

// scope returns the scope that a request is about: an entity, a resource or both; neither means the system.
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
	j := scopeOf(l)
	w.Header().Set("ETag", quoted(j.ETag))
	return reply(w, http.StatusOK, j)
}

// replySet is replyScope after a change, which may have left nothing set.
func replySet(w http.ResponseWriter, r *http.Request, q query, scope weir.Scope) error {
	err := replyScope(w, r, q, scope)
	if errors.Is(err, weir.ErrNotFound) {
		return done(w, nil)
	}
	return err
}

// setLimitsOf replaces all limits of a scope, sets its answer while the store does not answer, or does both.
func (s *Server) setLimitsOf(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r, "entity", "resource")
	if err != nil {
		return err
	}
	var limits []weir.Limit
	var u *weir.Unavailable
	err = decode(r, []string{"limits", "on_unavailable"}, func(sc *scanner, name string) (err error) {
		if name == "limits" {
			limits, err = sc.limits(name)
		} else {
			u, err = pointer(sc.unavailableOrDefault(name))
		}
		return err
	})
	if err != nil {
		return err
	}
	was, err := q.madeFrom(r)
	switch {
	case err != nil:
	case was != nil && u != nil:
		err = badField("on_unavailable", "is changed without regard to the limits: send it without If-Match and If-None-Match")
	case limits == nil && u != nil: // leave the limits as they are
	case was == nil || len(limits) == 0: // SetLimits refuses an empty list
		err = q.lim.SetLimits(r.Context(), q.scope(), limits...)
	default:
		err = stale(q.lim.ReplaceLimits(r.Context(), *was, limits...))
	}
	if err == nil && u != nil {
		err = q.lim.SetOnUnavailable(r.Context(), q.scope(), *u)
	}
	if err != nil {
		return err
	}
	return replySet(w, r, q, q.scope())
}

func (s *Server) deleteLimits(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r, "entity", "resource")
	if err != nil {
		return err
	}
	was, err := q.madeFrom(r)
	switch {
	case err != nil:
		return err
	case was == nil:
		return done(w, q.lim.DeleteLimits(r.Context(), q.scope()))
	}
	return done(w, stale(q.lim.ReplaceLimits(r.Context(), *was)))
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

// setSystem sets the namespace's settings. The namespace's limits are set through setLimitsOf, with the empty scope.
func (s *Server) setSystem(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r)
	if err != nil {
		return err
	}
	if r.Header.Get("If-Match")+r.Header.Get("If-None-Match") != "" {
		return badField("If-Match", "is for the limits, at /v1/limits: a setting is changed without regard to the others")
	}
	var u *weir.Unavailable
	var near *weir.Thresholds
	err = decode(r, []string{"on_unavailable", "near_limit"}, func(sc *scanner, name string) (err error) {
		if name == "near_limit" {
			near, err = pointer(sc.thresholds(name))
		} else {
			u, err = pointer(sc.unavailableOrDefault(name))
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
		if err := near.Validate(); err != nil { // validate before anything is set
			return err
		}
	}
	if u != nil {
		if err := q.lim.SetOnUnavailable(r.Context(), weir.Scope{}, *u); err != nil {
			return err
		}
	}
	if near != nil {
		if err := q.lim.SetNearLimit(r.Context(), *near); err != nil {
			return err
		}
	}
	return replySet(w, r, q, weir.Scope{})
}

// thresholds reads an array of percentages, or "default".
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
		t = append(t, int(max(0, min(n, 1000)))) // values out of range are refused later, whatever they are
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
