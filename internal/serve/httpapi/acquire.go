package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// acquireBody is the body of POST /v1/acquire.
type acquireBody struct {
	namespace string
	request   weir.Request
	wait      time.Duration
}

func parseAcquire(data []byte) (a acquireBody, err error) {
	var namespace, unavailable, wait *string
	req := &a.request
	err = unmarshal(data, members{
		{"entity", &req.Entity},
		{"resource", &req.Resource},
		{"tokens", &req.Tokens},
		{"namespace", &namespace},
		{"limits", &req.Limits},
		{"on_unavailable", &unavailable},
		{"wait", &wait},
	})
	if err != nil {
		return a, err
	}
	if req.Limits != nil && len(req.Limits) == 0 {
		return a, badField("limits", "must name at least one limit, or be left out")
	}
	if namespace != nil {
		if a.namespace = *namespace; a.namespace == "" {
			return a, badField("namespace", "must not be empty: leave it out")
		}
	}
	if unavailable != nil {
		if req.OnUnavailable, err = unavailableOf("on_unavailable", *unavailable); err != nil {
			return a, err
		}
	}
	if wait != nil {
		a.wait, err = parseWait(*wait)
	}
	return a, err
}

// parseWait parses a duration such as "1.5s".
func parseWait(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, badField("wait", `is not a duration such as "500ms" or "2s"`)
	case d < 0 || d > decide.MaxWait:
		return 0, badField("wait", "must be between 0s and %s", decide.MaxWait)
	}
	return d, nil
}

// decisions are the routes on which requests are decided, and their leases settled.
type decisions struct{ *Server }

func (s decisions) acquire(w http.ResponseWriter, r *http.Request) error {
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
func (s decisions) admit(w http.ResponseWriter, r *http.Request, buf *buffer, lim *weir.Limiter, lease *weir.Lease) {
	d, held := lease.Decision(), s.decide.Hold(lim, lease)
	h := w.Header()
	h["Content-Type"] = jsonType
	answer.SetFields(h, held.Entity(), d.Statuses, s.cfg.LegacyHeaders)
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
	b = append(b, '}', '\n')
	buf.b = b
	send(w, http.StatusOK, buf.b)
}

func (s decisions) available(w http.ResponseWriter, r *http.Request) error {
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
	answer.SetFields(h, entity, av.Statuses, s.cfg.LegacyHeaders)
	buf.b = append(appendAvailability(buf.b[:0], &av), '\n')
	send(w, http.StatusOK, buf.b)
	return nil
}
