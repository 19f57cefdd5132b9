package httpapi

import (
	"net/http"
	"net/url"

	"github.com/weirlimits/weir"
)

// listNamespaces lists the active namespaces; with deleted=true also those that can be recovered; or with orphaned=true
// only those that no name refers to any more.
func (s *Server) listNamespaces(w http.ResponseWriter, r *http.Request) error {
	q, err := s.registry(r, "deleted", "orphaned", "after", "max")
	if err != nil {
		return err
	}
	deleted, err := q.flag("deleted")
	if err != nil {
		return err
	}
	orphaned, err := q.flag("orphaned")
	if err != nil {
		return err
	}
	nq := weir.NamespaceQuery{Deleted: deleted, After: q.Get("after"), Max: q.max}
	list := q.lim.Namespaces
	if orphaned {
		list = q.lim.OrphanNamespaces
	}
	p, err := list(r.Context(), nq)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(p.Namespaces, p.Next, same))
}

// registry is query for requests about the namespaces themselves, which belong to no namespace.
func (s *Server) registry(r *http.Request, names ...string) (query, error) {
	q, err := parameters(r, names...)
	q.lim = s.cfg.Limiter
	if err == nil && q.Has("namespace") {
		err = badField("namespace", "has no meaning here: the namespace is in the path or body")
	}
	return q, err
}

func (s *Server) createNamespace(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.registry(r); err != nil {
		return err
	}
	var name string
	err := decode(r, []string{"name"}, func(sc *scanner, field string) (err error) {
		name, err = sc.text(field)
		return err
	})
	if err != nil {
		return err
	}
	n, err := s.cfg.Limiter.CreateNamespace(s.principal(r), name)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/namespaces/"+url.PathEscape(n.Name))
	return reply(w, http.StatusCreated, n)
}

func (s *Server) showNamespace(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.registry(r); err != nil {
		return err
	}
	n, err := s.cfg.Limiter.NamespaceByName(r.Context(), pathID(r, "name"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, n)
}

// deleteNamespace hides a namespace. Its contents stay until it is purged.
func (s *Server) deleteNamespace(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.registry(r); err != nil {
		return err
	}
	return done(w, s.cfg.Limiter.DeleteNamespace(s.principal(r), pathID(r, "name")))
}

func (s *Server) recoverNamespace(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.registry(r); err != nil {
		return err
	}
	if err := noBody(r); err != nil {
		return err
	}
	n, err := s.cfg.Limiter.RecoverNamespace(s.principal(r), pathID(r, "name"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, n)
}

func (s *Server) purgeNamespace(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.registry(r); err != nil {
		return err
	}
	if err := noBody(r); err != nil {
		return err
	}
	return done(w, s.cfg.Limiter.PurgeNamespace(s.principal(r), pathID(r, "name")))
}
