package httpapi

import (
	"context"
	"net/http"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// lease returns the lease whose id is in the path.
func (s decisions) lease(r *http.Request) (decide.Lease, error) {
	lease, err := s.decide.Lease(r.Context(), callerOf(r), r.PathValue("id"))
	if err == nil && r.URL.RawQuery != "" {
		err = badField("query", "must be empty: the lease knows its namespace")
	}
	return lease, err
}

// adjust answers with a new id, because the id in the path can be used only once.
func (s decisions) adjust(w http.ResponseWriter, r *http.Request) error {
	lease, err := s.lease(r)
	if err != nil {
		return err
	}
	var delta weir.Tokens
	err = decode(r, member{"tokens", &delta})
	switch {
	case err != nil:
		return err
	case delta == nil:
		return badField("tokens", `is missing: {"tokens":{"tpm":-120}}`)
	}
	if err := lease.Adjust(r.Context(), delta); err != nil {
		return err
	}
	buf := buffers.Get().(*buffer)
	defer buf.free()
	w.Header()["Content-Type"] = jsonType
	b := lease.AppendID(append(buf.b[:0], `{"lease":"`...))
	b = appendTime(append(b, `","expires":`...), lease.Expires())
	b = append(b, '}', '\n')
	buf.b = b
	send(w, http.StatusOK, buf.b)
	return nil
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
	lease, err := s.lease(r)
	if err != nil {
		return err
	}
	if err := noBody(r); err != nil {
		return err
	}
	return done(w, how(&lease, r.Context()))
}
