package httpapi

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/weirlimits/weir"
)

func (s *Server) listEntities(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "parent", "prefix", "after", "max")
	if err != nil {
		return err
	}
	return entityPage(w, r, q, q.Get("parent"))
}

func (s *Server) listChildren(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "after", "max")
	if err != nil {
		return err
	}
	return entityPage(w, r, q, pathID(r, "id"))
}

func entityPage(w http.ResponseWriter, r *http.Request, q query, parent string) error {
	p, err := q.lim.Entities(r.Context(), weir.EntityQuery{Parent: parent, Prefix: q.Get("prefix"), After: q.Get("after"), Max: q.max})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(p.Entities, p.Next, same))
}

func (s *Server) createEntity(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r)
	if err != nil {
		return err
	}
	var e weir.Entity
	err = decode(r, []string{"id", "name", "parent", "cascade", "metadata"}, func(sc *scanner, name string) (err error) {
		switch name {
		case "id":
			e.ID, err = sc.text(name)
		case "name":
			e.Name, err = sc.text(name)
		case "parent":
			e.Parent, err = sc.text(name)
		case "cascade":
			e.Cascade, err = sc.boolean(name)
		case "metadata":
			e.Metadata, err = sc.metadata(name)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := q.lim.CreateEntity(r.Context(), e); err != nil {
		var bad *weir.ConfigError
		if errors.As(err, &bad) && bad.Field == "entity" {
			return badField("id", "%s", bad.Reason) // the field's name in the body
		}
		return err
	}
	if e, err = q.lim.Entity(r.Context(), e.ID); err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/entities/"+url.PathEscape(e.ID))
	return reply(w, http.StatusCreated, e)
}

func (s *Server) showEntity(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r)
	if err != nil {
		return err
	}
	e, err := q.lim.Entity(r.Context(), pathID(r, "id"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, e)
}

// updateEntity changes the fields in the body. Metadata is replaced as a whole.
func (s *Server) updateEntity(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r)
	if err != nil {
		return err
	}
	var u weir.EntityUpdate
	err = decode(r, []string{"name", "parent", "cascade", "metadata"}, func(sc *scanner, name string) (err error) {
		switch name {
		case "name":
			u.Name, err = pointer(sc.text(name))
		case "parent":
			u.Parent, err = pointer(sc.text(name))
		case "cascade":
			u.Cascade, err = pointer(sc.boolean(name))
		case "metadata":
			u.Metadata, err = sc.metadata(name)
		}
		return err
	})
	if err != nil {
		return err
	}
	e, err := q.lim.UpdateEntity(r.Context(), pathID(r, "id"), u)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, e)
}

func pointer[T any](v T, err error) (*T, error) { return &v, err }

func (s *Server) deleteEntity(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r, "children")
	if err != nil {
		return err
	}
	children, err := q.flag("children")
	if err != nil {
		return err
	}
	return done(w, q.lim.DeleteEntity(r.Context(), pathID(r, "id"), weir.DeleteOptions{Children: children}))
}
