package httpapi

import (
	"net/http"
	"strconv"

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
	members := make(map[string]*api.Field)
	var names []string
	for _, f := range o.Fields() {
		if f.In == "" {
			members[f.Name] = &f
			names = append(names, f.Name)
		}
	}
	switch {
	case len(names) > 0:
		return decode(r, names, func(s *scanner, name string) error { return s.member(name, members[name].Ptr(req)) })
	case o.Method == http.MethodPost:
		return noBody(r)
	}
	return nil
}

// member reads a value of the type that to points to.
func (s *scanner) member(name string, to any) (err error) {
	switch p := to.(type) {
	case *string:
		*p, err = s.text(name)
	case **string:
		*p, err = pointer(s.text(name))
	case *bool:
		*p, err = s.boolean(name)
	case **bool:
		*p, err = pointer(s.boolean(name))
	case *map[string]string:
		*p, err = s.metadata(name)
	case *[]weir.Limit:
		*p, err = s.limits(name)
	case **weir.Unavailable:
		*p, err = pointer(s.unavailableOrDefault(name))
	case **weir.Thresholds:
		*p, err = pointer(s.thresholds(name))
	default:
		panic("no way to read " + name + " " + strconv.Quote(name)) // a test calls every operation
	}
	return err
}

func pointer[T any](v T, err error) (*T, error) { return &v, err }

// thresholds reads an array of percentages, or "default".
func (s *scanner) thresholds(field string) (weir.Thresholds, error) {
	if s.peek() == '"' {
		if t, err := s.text(field); err != nil || t != "default" {
			return nil, badField(field, "must be an array of percentages, or \"default\"")
		}
		return nil, nil
	}
	t := weir.Thresholds{}
	err := s.list(field, func(int) error {
		n, err := s.integer(field)
		t = append(t, int(max(0, min(n, 1000)))) // values out of range are refused later, whatever they are
		return err
	})
	return t, err
}

func (s *Server) refresh(w http.ResponseWriter, r *http.Request) error {
	if err := noBody(r); err != nil {
		return err
	}
	s.cfg.Limiter.Refresh()
	return done(w, nil)
}
