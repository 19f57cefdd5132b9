package httpapi

import (
	"context"
	_ "embed"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// probes are the routes about the server itself.
type probes struct {
	*Server

	asked asked
}

// health reports that the process is alive.
func (s *probes) health(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, http.StatusOK, struct {
		Status  string `json:"status"`
		Version string `json:"version,omitempty"`
	}{"ok", s.cfg.Version})
}

// ready reports that the store answers and that the server is not shutting down.
func (s *probes) ready(w http.ResponseWriter, r *http.Request) error {
	if s.decide.Draining() {
		return decide.ErrDraining
	}
	if err := s.asked.answers(r.Context(), s.cfg.Limiter); err != nil {
		return err
	}
	return reply(w, http.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
}

// asked caches whether the store answered its last readiness check. The store is checked at most once a second, because
// anyone may ask for readiness and each check reads the store.
type asked struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

func (a *asked) answers(ctx context.Context, lim *weir.Limiter) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) < time.Second {
		return a.err
	}
	// other callers wait for the answer too
	_, a.err = admin.New(lim).Limits.Get(context.WithoutCancel(ctx), admin.Scope{})
	if errors.Is(a.err, weir.ErrNotFound) {
		a.err = nil // a store without limits also answers
	}
	a.at = time.Now()
	return a.err
}

// whoami returns the caller's principal, roles and namespaces.
func (s *probes) whoami(w http.ResponseWriter, r *http.Request) error {
	q, err := parameters(r)
	if err == nil && q.Has("namespace") {
		err = badField("namespace", "has no meaning here: the token says it")
	}
	if err != nil {
		return err
	}
	v := callerOf(r)
	return reply(w, http.StatusOK, struct {
		Principal  string      `json:"principal"`
		Roles      []auth.Role `json:"roles"`
		Namespaces []string    `json:"namespaces"`
		Namespace  string      `json:"namespace"`
	}{v.Audit("http"), v.Roles(), v.Namespaces(), v.Namespace(s.cfg.Limiter.Namespace())})
}

//go:embed openapi.json
var openAPIDocument []byte

func (s *probes) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header()["Content-Type"] = jsonType
	send(w, http.StatusOK, openAPIDocument)
	return nil
}

func (s *probes) scrape(w http.ResponseWriter, r *http.Request) error {
	if s.cfg.Metrics == nil {
		return errNoMetrics
	}
	w.Header()["Cache-Control"] = noStore
	s.cfg.Metrics.Handler().ServeHTTP(w, r)
	return nil
}
