package httpapi

import (
	"net/http"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// needs are the permissions of operations.
var needs = map[api.Need]need{api.Read: reads, api.Admin: changes, api.ReadAll: readsAll, api.AdminAll: changesAll}

// operations are the routes of the operations that [api] declares.
func (s *Server) operations() []route {
	routes := make([]route, len(api.Operations))
	for i, o := range api.Operations {
		routes[i] = route{o.Method, o.Path, needs[o.Need], func(w http.ResponseWriter, r *http.Request) error {
			return s.operate(o, w, r)
		}}
	}
	return routes
}

// operate reads the request of an operation, runs it and answers.
func (s *Server) operate(o *api.Op, w http.ResponseWriter, r *http.Request) error {
	req := o.New()
	lim, err := s.operand(o, r, req)
	if err != nil {
		return err
	}
	if err := operationBody(o, r, req); err != nil {
		return err
	}
	if o.Wide != nil && o.Wide(req) && !callerOf(r).Everywhere(auth.Read) {
		return decide.ErrForbidden
	}
	resp, err := o.Run(s.principal(r), lim, req)
	if err != nil {
		return err
	}
	if resp == nil {
		return done(w, nil)
	}
	if tagged, ok := resp.(interface{ ETag() string }); ok {
		w.Header().Set("ETag", tagged.ETag())
	}
	if o.Location != nil {
		w.Header().Set("Location", o.Location(resp))
		return reply(w, http.StatusCreated, resp)
	}
	return reply(w, http.StatusOK, resp)
}

// operand reads what the path, the query and the header of a request hold, and returns the limiter of its namespace.
func (s *Server) operand(o *api.Op, r *http.Request, req any) (*weir.Limiter, error) {
	var names []string
	for _, f := range o.Fields() {
		if f.In == "query" {
			names = append(names, f.Name)
		}
	}
	q, err := parameters(r, names...)
	if err != nil {
		return nil, err
	}
	lim := s.cfg.Limiter
	switch all := o.Need == api.ReadAll || o.Need == api.AdminAll; {
	case !all:
		if lim, err = s.in(r, q.Get("namespace")); err != nil {
			return nil, err
		}
	case q.Has("namespace"):
		return nil, badField("namespace", "has no meaning here: the namespace is in the path or body")
	}
	for _, f := range o.Fields() {
		texts := q.Values[f.Name]
		switch f.In {
		case "path":
			texts = []string{pathID(r, f.Name)}
		case "header":
			texts = r.Header.Values(f.Name)
		case "":
			continue
		}
		for _, text := range texts {
			if err := f.Set(req, text); err != nil {
				return nil, err
			}
		}
	}
	return lim, nil
}

// operationBody reads the members of a request that are in its body.
func operationBody(o *api.Op, r *http.Request, req any) error {
	var body members
	for _, f := range o.Fields() {
		if f.In == "" {
			body = append(body, member{f.Name, f.Ptr(req)})
		}
	}
	switch {
	case len(body) > 0:
		return decode(r, body...)
	case o.Method == http.MethodPost:
		return noBody(r)
	}
	return nil
}

func (s *Server) refresh(w http.ResponseWriter, r *http.Request) error {
	if err := noBody(r); err != nil {
		return err
	}
	s.cfg.Limiter.Refresh()
	return done(w, nil)
}
