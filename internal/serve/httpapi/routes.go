package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

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
	return append(s.operations(), []route{
		{"POST", "/v1/acquire", spends, s.acquire},
		{"GET", "/v1/available", reads, s.available},
		{"GET", "/v1/explain", reads, s.explain},
		{"GET", "/v1/watch", reads, s.watch},
		{"POST", "/v1/leases/{id}/adjust", spends, s.adjust},
		{"POST", "/v1/leases/{id}/commit", spends, s.commit},
		{"POST", "/v1/leases/{id}/rollback", spends, s.rollback},
		{"POST", "/v1/refresh", changesAll, s.refresh},
		{"GET", "/v1/whoami", known, s.whoami},

		{"GET", "/v1/manifests/schema", anyone, s.manifestSchema},
		{"GET", "/v1/manifests/export", reads, s.exportManifest},
		{"POST", "/v1/manifests/validate", reads, s.validateManifests},
		{"POST", "/v1/manifests/plan", reads, s.planManifests},
		{"POST", "/v1/manifests/diff", reads, s.diffManifests},
		{"POST", "/v1/manifests/apply", changes, s.applyManifests},
		{"POST", "/v1/manifests/{name}/rollback", changes, s.rollbackManifest},

		{"GET", "/v1/usage/stream", reads, s.streamUsage},
		{"GET", "/v1/overview", reads, s.overview},

		{"GET", "/healthz", anyone, s.health},
		{"GET", "/readyz", anyone, s.ready},
		{"GET", "/metrics", scrapes, s.scrape},
		{"GET", "/v1/openapi.json", anyone, s.openAPI},
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
	if s.logs {
		serve = s.logging(serve)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.survive(w, r)
		if err := serve(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// survive recovers from a handler's panic and answers in its place.
func (s *Server) survive(w http.ResponseWriter, r *http.Request) {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		s.cfg.Log.LogAttrs(r.Context(), slog.LevelError, "a request panicked",
			slog.String("route", r.Pattern), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		s.fail(w, r, &httpError{kind: kindInternal, detail: "the error was logged"})
	}
}

func (s *Server) logging(serve handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		began := time.Now()
		err := serve(w, r)
		level := slog.LevelDebug
		if s.cfg.LogRequests {
			level = slog.LevelInfo
		}
		s.cfg.Log.LogAttrs(r.Context(), level, "request", slog.String("method", r.Method),
			slog.String("route", r.Pattern), slog.Duration("took", time.Since(began)), slog.Any("error", err))
		return err
	}
}

// send writes a whole response. net/http adds the Content-Length if the response is small.
func send(w http.ResponseWriter, status int, body []byte) {
	if len(body) > 2000 {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client is gone
}
