package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// lease returns the lease whose id is in the path, when it is the caller's turn: the body must have been read.
func (s decisions) lease(r *http.Request) (decide.Lease, error) {
	lease, err := s.decide.Lease(r.Context(), callerOf(r), r.PathValue("id"))
	if err == nil && r.URL.RawQuery != "" {
		err = badField("query", "must be empty: the lease knows its namespace")
	}
	return lease, err
}

// adjust answers with a new id, because the id in the path can be used only once.
func (s decisions) adjust(w http.ResponseWriter, r *http.Request) error {
	var delta weir.Tokens
	err := decode(r, member{"tokens", &delta})
	switch {
	case err != nil:
		return err
	case delta == nil:
		return errNoTokens
	}
	lease, err := s.lease(r)
	if err != nil {
		return err
	}
	left, err := lease.Adjust(r.Context(), delta)
	return s.adjusted(w, r, left, err, func(b []byte) []byte {
		b = appendLease(b, &lease)
		return append(strconv.AppendBool(append(b, `,"degraded":`...), lease.Degraded()), ',')
	})
}

// adjusted answers what an adjustment left, or that it was made in part. The answer begins with what first appends.
func (s decisions) adjusted(
	w http.ResponseWriter, r *http.Request, left []weir.Balance, err error, first func([]byte) []byte,
) error {
	buf := buffers.Get().(*buffer)
	defer buf.free()
	b, kind, status := buf.b[:0], jsonType, http.StatusOK
	switch {
	case errors.Is(err, weir.ErrMaxDebt): // the problem, with the members of the answer
		p := s.problemOf(r, err)
		b, kind, status = p.append(b), problemType, p.kind.Status
		b = append(b[:len(b)-len("}\n")], ',')
	case err != nil:
		return err
	default:
		b = append(b, '{')
	}
	w.Header()["Content-Type"] = kind
	b = answer.AppendBalances(append(first(b), `"limits":`...), left)
	b = append(b, '}', '\n')
	buf.b = b
	return s.send(w, r, status, buf.b)
}

// adjustEntity changes what an entity has spent without a lease.
func (s decisions) adjustEntity(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery != "" {
		return errQuery
	}
	var (
		req       weir.Request
		namespace *string
	)
	err := decode(r, member{"entity", &req.Entity}, member{"resource", &req.Resource}, member{"tokens", &req.Tokens},
		member{"namespace", &namespace}, member{"id", &req.ID})
	switch {
	case err != nil:
		return err
	case len(req.Tokens) == 0:
		return errNoTokens
	}
	in, err := namespaceOf(namespace)
	if err != nil {
		return err
	}
	left, err := s.decide.Adjust(r.Context(), callerOf(r), in, req)
	return s.adjusted(w, r, left, err, func(b []byte) []byte { return b })
}

var errNoTokens = badField("tokens", `is missing: {"tokens":{"tpm":-120}}`)

// renew answers with a new id, and for how long it holds the slots.
func (s decisions) renew(w http.ResponseWriter, r *http.Request) error {
	if err := noBody(r); err != nil {
		return err
	}
	lease, err := s.lease(r)
	if err == nil {
		err = lease.Renew(r.Context())
	}
	if err != nil {
		return err
	}
	buf := buffers.Get().(*buffer)
	defer buf.free()
	w.Header()["Content-Type"] = jsonType
	buf.b = append(appendLease(append(buf.b[:0], '{'), &lease), '}', '\n')
	return s.send(w, r, http.StatusOK, buf.b)
}

// appendLease appends the members that a client needs to use a lease.
func appendLease(b []byte, lease *decide.Lease) []byte {
	b = lease.AppendID(append(b, `"lease":"`...))
	b = appendTime(append(b, `","expires":`...), lease.Expires())
	if d := lease.HeldFor(); d > 0 {
		b = answer.AppendSeconds(append(b, `,"held_for":`...), d.Truncate(time.Millisecond))
	}
	return b
}

func (s decisions) commit(w http.ResponseWriter, r *http.Request) error {
	return s.settle(w, r, (*decide.Lease).Commit)
}

func (s decisions) rollback(w http.ResponseWriter, r *http.Request) error {
	return s.settle(w, r, (*decide.Lease).Rollback)
}

func (s decisions) settle(
	w http.ResponseWriter, r *http.Request, how func(*decide.Lease, context.Context) error,
) error {
	if err := noBody(r); err != nil {
		return err
	}
	lease, err := s.lease(r)
	if err != nil {
		return err
	}
	return done(w, how(&lease, r.Context()))
}
