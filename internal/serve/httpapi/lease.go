package httpapi

import (
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/leaseid"
)

// resume returns the lease whose id is in the path.
func (s *Server) resume(r *http.Request) (*weir.Lease, *leaseid.Lease, error) {
	t, ok := s.signer.Parse(r.PathValue("id"))
	v := visitOf(r)
	switch {
	case !ok, !v.May(v.need.role, t.Namespace): // treat another principal's lease as unknown
		return nil, nil, errNoLease
	case r.URL.RawQuery != "":
		return nil, nil, badField("query", "must be empty: the lease knows its namespace")
	}
	lease, err := s.cfg.Limiter.In(t.Namespace).Resume(r.Context(), t.Held)
	return lease, t, err
}

// adjust answers with a new id, because the id in the path can be used only once.
func (s *Server) adjust(w http.ResponseWriter, r *http.Request) error {
	lease, t, err := s.resume(r)
	if err != nil {
		return err
	}
	var delta weir.Tokens
	err = decode(r, []string{"tokens"}, func(sc *scanner, name string) (err error) {
		delta, err = sc.tokens(name)
		return err
	})
	switch {
	case err != nil:
		return err
	case delta == nil:
		return badField("tokens", `is missing: {"tokens":{"tpm":-120}}`)
	}
	if err := lease.Adjust(r.Context(), delta); err != nil {
		return err
	}
	t.Held = lease.Held()
	buf := buffers.Get().(*buffer)
	defer buf.free()
	w.Header()["Content-Type"] = jsonType
	b := s.signer.Append(append(buf.b[:0], `{"lease":"`...), t)
	b = appendTime(append(b, `","expires":`...), t.Held.Expires)
	b = append(b, '}', '\n')
	buf.b = b
	send(w, http.StatusOK, buf.b)
	return nil
}

// commit writes nothing, because a lease counts as committed unless it is rolled back. It lets a client be explicit, and
// verify its id.
func (s *Server) commit(w http.ResponseWriter, r *http.Request) error {
	lease, t, err := s.resume(r)
	if err != nil {
		return err
	}
	if err := noBody(r); err != nil {
		return err
	}
	if time.Now().After(t.Held.Expires) { // the store would say the same, but is not asked
		return errGone
	}
	if err := lease.Commit(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) rollback(w http.ResponseWriter, r *http.Request) error {
	lease, _, err := s.resume(r)
	if err != nil {
		return err
	}
	if err := noBody(r); err != nil {
		return err
	}
	if err := lease.Rollback(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
