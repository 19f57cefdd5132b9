package httplimit

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer/middleware"
	"github.com/weirlimits/weir/internal/answer/problemjson"
	"github.com/weirlimits/weir/internal/answer/ratelimitheaders"
)

// setFields sets the RateLimit fields.
func (m *Middleware) setFields(h http.Header, entity string, statuses []weir.LimitStatus) {
	policy, limit := ratelimitheaders.Fields(entity, statuses)
	if policy == "" {
		return
	}
	values := []string{policy, limit} // one allocation
	h["Ratelimit-Policy"], h["Ratelimit"] = values[:1:1], values[1:]
	if m.cfg.LegacyHeaders {
		limit, remaining, reset := ratelimitheaders.Legacy(statuses)
		h.Set("X-RateLimit-Limit", limit)
		h.Set("X-RateLimit-Remaining", remaining)
		h.Set("X-RateLimit-Reset", reset)
	}
}

// refuse answers a request that is not handled.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, entity string, err error) {
	o := middleware.OutcomeOf(err, m.cfg.Tell)
	p := problemjson.Problem{Detail: o.Detail, RetryAfter: o.RetryAfter}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	switch o.Code {
	case weir.CodeExceeded:
		p.Kind, p.Refused, p.Entity, p.Statuses = problemjson.Exceeded, true, entity, o.Statuses
		m.setFields(h, entity, o.Statuses)
		var over *weir.ExceededError
		if errors.As(err, &over) && over.Degraded {
			h.Set("Weir-Degraded", "store-unavailable")
			p.Degraded, p.Over = true, over.Over
		}
	case weir.CodeExceedsBurst:
		p.Kind = problemjson.ExceedsBurst
	case weir.CodeUnavailable:
		p.Kind = problemjson.Unavailable
		if r.Context().Err() == nil {
			m.trouble(r, "the store does not answer", err)
		}
	default:
		var chosen *StatusError
		if errors.As(err, &chosen) && chosen.Status >= 400 && chosen.Status <= 599 {
			p.Kind = &problemjson.Kind{Status: chosen.Status, URI: "about:blank", Title: http.StatusText(chosen.Status)}
			p.Detail = chosen.Detail
			break
		}
		p.Kind = problemjson.Internal
		m.trouble(r, "a request could not be limited", err)
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", ratelimitheaders.RetryAfter(p.RetryAfter))
	}
	if m.cfg.OnRefused != nil {
		rec := &recorder{ResponseWriter: w}
		m.cfg.OnRefused(rec, r, &Refusal{Status: p.Kind.Status, RetryAfter: p.RetryAfter, Err: err, Detail: p.Detail})
		if rec.status != 0 {
			return
		}
	} // it wrote nothing, and the server would answer 200
	body := p.Append(nil)
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Kind.Status)
	_, _ = w.Write(body) // an error means that the client has gone
}
