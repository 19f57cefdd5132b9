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

var errQuery = badField("query", "must be empty: everything is in the body")

// acquireBody is the body of POST /v1/acquire, or a request of a batch.
type acquireBody struct {
	namespace string
	request   weir.Request
	wait      time.Duration
}

func parseAcquire(data []byte) (a acquireBody, err error) {
	var in struct { // one allocation
		req                          weir.Request
		namespace, unavailable, wait *string
	}
	err = unmarshal(data, members{
		{"entity", &in.req.Entity},
		{"resource", &in.req.Resource},
		{"tokens", &in.req.Tokens},
		{"namespace", &in.namespace},
		{"limits", &in.req.Limits},
		{"on_unavailable", &in.unavailable},
		{"wait", &in.wait},
	})
	if err != nil {
		return a, err
	}
	a.request = in.req
	req := &a.request
	if req.Limits != nil && len(req.Limits) == 0 {
		return a, badField("limits", "must name at least one limit, or be left out")
	}
	if a.namespace, err = namespaceOf(in.namespace); err != nil {
		return a, err
	}
	if in.unavailable != nil {
		if req.OnUnavailable, err = unavailableOf("on_unavailable", *in.unavailable); err != nil {
			return a, err
		}
	}
	if in.wait != nil {
		a.wait, err = parseWait(*in.wait)
	}
	return a, err
}

// namespaceOf returns the namespace that a body names, or "" for none.
func namespaceOf(named *string) (string, error) {
	switch {
	case named == nil:
		return "", nil
	case *named == "":
		return "", badField("namespace", "must not be empty: leave it out")
	}
	return *named, nil
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
		return errQuery
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
	lim, err := s.in(r, decide.AccessOf(a.namespace, &a.request))
	if err != nil {
		return err
	}
	lease, err := s.decide.Acquire(r.Context(), callerOf(r), lim, a.request, a.wait)
	if err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"] = jsonType
	answer.SetFields(h, a.request.Entity, lease.Decision().Statuses, s.cfg.LegacyHeaders)
	if lease.Degraded() {
		h.Set("Weir-Degraded", "store-unavailable")
	}
	buf.b = append(s.appendAdmitted(buf.b[:0], r, lim, lease, false), '\n')
	err = s.send(w, r, http.StatusOK, buf.b)
	if err != nil && lease.Slots() != nil { // nobody gets the lease by which they are given back
		decide.TakeBack(r.Context(), lease)
	}
	return err
}

// appendAdmitted appends the answer to an admitted request; if it is brief, without what settles the lease, and without
// statuses.
func (s decisions) appendAdmitted(
	b []byte, r *http.Request, lim *weir.Limiter, lease *weir.Lease, brief bool,
) []byte {
	b = append(b, `{"allowed":true`...)
	if !brief {
		held := s.decide.Hold(lim, lease)
		b = appendLease(append(b, ','), &held)
	}
	if !lease.Degraded() {
		b = append(b, `,"degraded":false`...)
	} else {
		// The reason goes to the log, not to the client.
		d := lease.Decision()
		s.trouble(r, "admitted without the store", errors.New(d.Reason))
		b = append(b, `,"degraded":true,"over":`...)
		b = append(strconv.AppendInt(b, d.Over, 10), `,"reason":"the store did not answer"`...)
	}
	if !brief {
		b = appendStatuses(append(b, `,"limits":`...), lease.Decision().Statuses)
	}
	return append(b, '}')
}

func (s decisions) available(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "entity", "resource")
	if err != nil {
		return err
	}
	if err := s.decide.Turn(r.Context(), callerOf(r), q.lim); err != nil {
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
	return s.send(w, r, http.StatusOK, buf.b)
}
