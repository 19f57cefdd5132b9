package httplimit

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

// refuse answers a request that is not handled.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, entity string, err error) {
	o := answer.OutcomeOf(err, m.cfg.Tell)
	p := answer.Problem{Detail: o.Detail, RetryAfter: o.RetryAfter}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	switch o.Code {
	case weir.CodeExceeded:
		p.Kind, p.Refused, p.Entity, p.Statuses = answer.Exceeded, true, entity, o.Statuses
		answer.SetFields(h, entity, o.Statuses, m.cfg.LegacyHeaders)
		if over, ok := errors.AsType[*weir.ExceededError](err); ok && over.Degraded {
			h.Set("Weir-Degraded", "store-unavailable")
			p.Degraded, p.Over = true, over.Over
		}
	case weir.CodeExceedsBurst:
		p.Kind = answer.ExceedsBurst
	case weir.CodeUnknownEntity:
		p.Kind = answer.UnknownEntity
	case weir.CodeBucketQuota:
		p.Kind = answer.BucketQuota
	case weir.CodeUnavailable:
		p.Kind = answer.Unavailable
		if r.Context().Err() == nil {
			m.trouble(r, "the store did not answer a request in time", err)
		}
	default:
		if chosen, ok := errors.AsType[*StatusError](err); ok && chosen.Status >= 400 && chosen.Status <= 599 {
			p.Kind = &answer.Kind{Status: chosen.Status, URI: "about:blank", Title: http.StatusText(chosen.Status)}
			p.Detail = chosen.Detail
			break
		}
		p.Kind = answer.Internal
		m.trouble(r, "a request could not be limited", err)
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", answer.RetryAfter(p.RetryAfter))
	}
	m.cfg.Errors.Fields(p.Statuses, p.RetryAfter, h.Set)
	if m.cfg.OnRefused != nil {
		rec := &recorder{ResponseWriter: w}
		m.cfg.OnRefused(rec, r, &Refusal{Status: p.Kind.Status, RetryAfter: p.RetryAfter, Err: err, Detail: p.Detail})
		if rec.status != 0 {
			return
		}
	} // it wrote nothing, and the server would answer 200
	body := m.cfg.Errors.Append(nil, &p)
	h.Set("Content-Type", m.cfg.Errors.MediaType())
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Kind.Status)
	_, _ = w.Write(body) // an error means that the client has gone
}
