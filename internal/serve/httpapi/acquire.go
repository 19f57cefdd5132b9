package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// acquireBody is the body of POST /v1/acquire.
type acquireBody struct {
	namespace string
	request   weir.Request
	wait      time.Duration
}

var acquireFields = []string{"entity", "resource", "tokens", "namespace", "limits", "on_unavailable", "wait"}

func parseAcquire(data []byte) (acquireBody, error) {
	var a acquireBody
	s := scanner{data: data}
	err := s.document(func() error {
		return s.object("body", acquireFields, func(name string) (err error) {
			switch name {
			case "entity":
				a.request.Entity, err = s.text(name)
			case "resource":
				a.request.Resource, err = s.text(name)
			case "tokens":
				a.request.Tokens, err = s.tokens(name)
			case "namespace":
				if a.namespace, err = s.text(name); err == nil && a.namespace == "" {
					err = badField(name, "must not be empty: leave it out")
				}
			case "limits":
				if a.request.Limits, err = s.limits(name); err == nil && len(a.request.Limits) == 0 {
					err = badField(name, "must name at least one limit, or be left out")
				}
			case "on_unavailable":
				a.request.OnUnavailable, err = s.unavailable(name)
			case "wait":
				a.wait, err = s.duration(name, decide.MaxWait)
			}
			return err
		})
	})
	return a, err
}

func (s *Server) acquire(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery != "" {
		return badField("query", "must be empty: everything is in the body")
	}
	buf := buffers.Get().(*buffer)
	defer buf.free()
	body, err := buf.read(r)
	if err != nil {
		return err
	}
	a, err := parseAcquire(body)
	if err != nil {
		return err
	}
	lim, err := s.in(r, a.namespace)
	if err != nil {
		return err
	}
	lease, err := s.decide.Acquire(r.Context(), callerOf(r), lim, a.request, a.wait)
	if err != nil {
		return err
	}
	s.admit(w, r, buf, lim, lease)
	return nil
}

// admit sends the response to an admitted request.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, buf *buffer, lim *weir.Limiter, lease *weir.Lease) {
	d, held := lease.Decision(), s.decide.Hold(lim, lease)
	h := w.Header()
	h["Content-Type"] = jsonType
	s.setLimits(h, held.Entity(), d.Statuses)
	b := held.AppendID(append(buf.b[:0], `{"allowed":true,"lease":"`...))
	b = appendTime(append(b, `","expires":`...), held.Expires())
	if d.Degraded {
		// The reason goes to the log, not to the client.
		s.trouble(r, "admitted without the store", errors.New(d.Reason))
		h.Set("Weir-Degraded", "store-unavailable")
		b = append(b, `,"degraded":true,"over":`...)
		b = append(strconv.AppendInt(b, d.Over, 10), `,"reason":"the store did not answer"`...)
	} else {
		b = append(b, `,"degraded":false`...)
	}
	b = appendStatuses(append(b, `,"limits":`...), d.Statuses)
	buf.b = append(b, '}', '\n')
	send(w, http.StatusOK, buf.b)
}

func (s *Server) available(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "entity", "resource")
	if err != nil {
		return err
	}
	entity := q.Get("entity")
	av, err := q.lim.Available(r.Context(), entity, q.Get("resource"))
	if err != nil {
		return err
	}
	buf := buffers.Get().(*buffer)
	defer buf.free()
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = jsonType, noStore
	s.setLimits(h, entity, av.Statuses)
	buf.b = append(appendAvailability(buf.b[:0], &av), '\n')
	send(w, http.StatusOK, buf.b)
	return nil
}
