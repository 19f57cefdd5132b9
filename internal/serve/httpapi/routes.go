package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/web"
)

// handler answers a request or returns an error. If it returns an error, it has written nothing.
type handler func(http.ResponseWriter, *http.Request) error

// route is a method and a path, with its handler.
type route struct {
	method, path string
	need         need
	serve        handler
}

// routes is the API. A test checks that openapi.json matches it.
func (s *Server) routes() []route {
	decisions, streams, probes := decisions{s}, streams{s}, &probes{Server: s}
	manifests := &manifests{s}
	return append(s.operations(), []route{
		{"POST", "/v1/acquire", spends, decisions.acquire},
		{"POST", "/v1/acquire/batch", spends, decisions.acquireBatch},
		{"POST", "/v1/adjust", spends, decisions.adjustEntity},
		{"GET", "/v1/available", reads, decisions.available},
		{"GET", "/v1/watch", reads, streams.watch},
		{"POST", "/v1/leases/{id}/adjust", spends, decisions.adjust},
		{"POST", "/v1/leases/{id}/commit", spends, decisions.commit},
		{"POST", "/v1/leases/{id}/rollback", spends, decisions.rollback},
		{"POST", "/v1/leases/{id}/renew", spends, decisions.renew},
		{"POST", "/v1/refresh", changesAll, s.refresh},
		{"GET", "/v1/whoami", authenticated, probes.whoami},

		{"GET", "/v1/manifests/schema", anyone, manifests.schema},
		{"POST", "/v1/manifests/validate", reads, manifests.validate},
		{"POST", "/v1/manifests/plan", reads, manifests.plan},
		{"POST", "/v1/manifests/diff", reads, manifests.diff},
		{"POST", "/v1/manifests/apply", changes, manifests.apply},
		{"POST", "/v1/manifests/{name}/rollback", changes, manifests.rollback},

		{"GET", "/v1/usage/stream", reads, streams.streamUsage},
		{"GET", "/v1/overview", reads, streams.overview},

		{"GET", "/healthz", anyone, probes.health},
		{"GET", "/readyz", anyone, probes.ready},
		{"GET", "/metrics", scrapes, probes.scrape},
		{"GET", "/v1/openapi.json", anyone, probes.openAPI},
	}...)
}

// mux routes by path and then method. It answers all other requests with problems; those of ServeMux are plain text.
func (s *Server) mux() *http.ServeMux {
	mux := http.NewServeMux()
	allowed := make(map[string][]string)
	for _, r := range s.routes() {
		mux.Handle(r.method+" "+r.path, s.handle(s.admitted(r.need, r.serve)))
		allowed[r.path] = append(allowed[r.path], r.method)
	}
	for path, methods := range allowed {
		if slices.Contains(methods, "GET") {
			methods = append(methods, "HEAD")
		}
		slices.Sort(methods)
		allow := strings.Join(methods, ", ")
		mux.Handle(path, s.handle(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", allow)
			return &httpError{kind: kindMethod, detail: fmt.Sprintf("%s does not take %.20q, but %s", path, r.Method,
				allow)}
		}))
	}
	for _, pattern := range web.Patterns() {
		mux.Handle(pattern, web.Handler())
	}
	mux.Handle("/", s.handle(func(http.ResponseWriter, *http.Request) error { return errNoRoute }))
	return mux
}

// slash supports the id "/", sent as %2F. ServeMux would take it for a slash at the end of the path, so slash replaces
// it with a NUL, which no id contains, and pathID turns that back.
func slash(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawPath != "" || strings.Contains(r.URL.Path, "\x00") {
			segments := strings.Split(r.URL.EscapedPath(), "/")
			for i, segment := range segments {
				switch segment {
				case "%2F", "%2f":
					segments[i] = "%00"
				case "%00":
					segments[i] = "%00%00" // still invalid
				}
			}
			if raw := strings.Join(segments, "/"); raw != r.URL.RawPath {
				u := *r.URL
				u.RawPath = raw
				u.Path, _ = url.PathUnescape(raw)
				r2 := *r
				r2.URL = &u
				next.ServeHTTP(w, &r2)
				r.Pattern = r2.Pattern // for the request metrics
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// pathID returns an id from the path.
func pathID(r *http.Request, name string) string {
	if id := r.PathValue(name); id != "\x00" {
		return id
	}
	return "/"
}

// guard refuses cross-site requests from browsers, because listening on the loopback address may be the API's only
// protection.
func (s *Server) guard(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(s.handle(func(http.ResponseWriter, *http.Request) error { return errForeign }))
	return p.Handler(next)
}

func (s *Server) handle(serve handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &decide.Caller{Conn: connOf(r)}
		defer c.End()
		r = r.WithContext(decide.With(r.Context(), c))
		var err error
		if s.decide.LogsRequests() {
			answered, began := &answered{ResponseWriter: w}, time.Now()
			id := decide.RequestID(r.Header.Get("X-Request-Id"))
			w.Header()["X-Request-Id"] = []string{id}
			w = answered
			defer func() {
				s.decide.Request(r.Context(), c, r.RemoteAddr, id, began, err, slog.String("method", r.Method),
					slog.String("route", r.Pattern), slog.Int("status", cmp.Or(answered.status, http.StatusOK)))
			}()
		}
		defer s.survive(w, r)
		if err = serve(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// answered remembers the status of an answer.
type answered struct {
	http.ResponseWriter
	status int // 0: 200
}

// WriteHeader implements http.ResponseWriter.
func (a *answered) WriteHeader(status int) {
	if a.status < http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// survive recovers from a handler's panic and answers in its place.
func (s *Server) survive(w http.ResponseWriter, r *http.Request) {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		s.fail(w, r, s.decide.Panicked(r.Context(), v, slog.String("route", r.Pattern)))
	}
}

// send writes a whole response, if there is memory for it beside others that are not read: a client may take its time.
func (s *Server) send(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	c := callerOf(r)
	c.Leave()
	if !s.decide.Reserve(r.Context(), c, len(body), 0) {
		return decide.ErrUnread
	}
	write(w, status, body)
	return nil
}

// reply answers with any value as JSON.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = jsonType, noStore
	return s.send(w, r, status, b.Bytes())
}

// write writes a whole response. net/http adds the Content-Length if the response is small.
func write(w http.ResponseWriter, status int, body ...[]byte) {
	size := 0
	for _, b := range body {
		size += len(b)
	}
	if size > 2000 {
		w.Header()["Content-Length"] = []string{strconv.Itoa(size)}
	}
	w.WriteHeader(status)
	for _, b := range body {
		_, _ = w.Write(b) // an error means that the client is gone
	}
}

// operations are the routes of the operations that [api] declares.
func (s *Server) operations() []route {
	var routes []route
	for _, o := range api.Operations {
		if o.Raw {
			continue
		}
		serve := func(w http.ResponseWriter, r *http.Request) error { return s.operate(o, w, r) }
		routes = append(routes, route{o.Method, o.Path, needs[o.Need], serve})
	}
	return routes
}

// operate reads the request of an operation, runs it and answers.
func (s *Server) operate(o *api.Op, w http.ResponseWriter, r *http.Request) error {
	req := o.New()
	lim, err := s.operand(r, req, o.Fields(), o.Need == api.ReadAll || o.Need == api.AdminAll)
	if err != nil {
		return err
	}
	if err := operationBody(o, r, req); err != nil {
		return err
	}
	if err := s.decide.Turn(r.Context(), callerOf(r), lim); err != nil {
		return err
	}
	resp, err := o.Run(s.principal(r), lim, req)
	if err != nil {
		return err
	}
	if resp == nil {
		return done(w, nil)
	}
	if tagged, ok := resp.(interface{ ETag() string }); ok {
		tag := tagged.ETag()
		w.Header().Set("ETag", tag)
		if o.Method == http.MethodGet && api.Unchanged(r.Header.Values("If-None-Match"), strings.Trim(tag, `"`)) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	if o.Location != nil {
		w.Header().Set("Location", o.Location(resp))
		return s.reply(w, r, http.StatusCreated, resp)
	}
	return s.reply(w, r, http.StatusOK, resp)
}

// operand reads the fields that the path, the query and the header of a request hold, and returns the limiter of its
// namespace, unless it concerns all.
func (s *Server) operand(r *http.Request, req any, fields []api.Field, all bool) (*weir.Limiter, error) {
	var names []string
	for _, f := range fields {
		if f.In == "query" {
			names = append(names, f.Name)
		}
	}
	q, err := parameters(r, names...)
	if err != nil {
		return nil, err
	}
	if err := conditions(r, fields); err != nil {
		return nil, err
	}
	if all && q.Has("namespace") {
		return nil, badField("namespace", "has no meaning here: the path or the body names it")
	}
	for _, f := range fields {
		texts := q.Values[f.Name]
		switch f.In {
		case "path":
			texts = []string{pathID(r, f.Name)}
		case "header":
			texts = r.Header.Values(f.Name)
		case "":
			continue
		default:
			if len(texts) == 1 && f.Many(req) {
				texts = strings.Split(texts[0], ",")
			}
		}
		for _, text := range texts {
			if err := f.Set(req, text); err != nil {
				return nil, err
			}
		}
	}
	if all {
		return s.cfg.Limiter, nil
	}
	if wide, ok := req.(api.Wide); ok && wide.Everywhere() {
		if _, err := s.in(r, auth.Access{Namespace: auth.All}); err != nil {
			return nil, err
		}
	}
	entity, resource := api.About(req, fields)
	return s.in(r, auth.Access{Namespace: q.Get("namespace"), Entity: entity, Resource: resource})
}

// conditions refuses a change under a condition that nothing would check.
func conditions(r *http.Request, fields []api.Field) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		known := slices.ContainsFunc(fields, func(f api.Field) bool { return f.Name == name })
		if !known && len(r.Header.Values(name)) > 0 {
			return badField(name, "is for limits and entities: this change has no conditions")
		}
	}
	return nil
}

func (s *Server) refresh(w http.ResponseWriter, r *http.Request) error {
	if err := noBody(r); err != nil {
		return err
	}
	parts.Of(s.cfg.Limiter).Policies.Expire()
	return done(w, nil)
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
