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
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// probes are the routes about the server itself.
type probes struct {
	*Server

	store storeCheck
}

// health reports that the process is alive.
func (s *probes) health(w http.ResponseWriter, r *http.Request) error {
	return s.reply(w, r, http.StatusOK, struct {
		Status  string `json:"status"`
		Version string `json:"version,omitempty"`
	}{"ok", s.cfg.Version})
}

// ready reports that requests should come to this server, that it has room for them, and that the store answers.
func (s *probes) ready(w http.ResponseWriter, r *http.Request) error {
	if l := s.listener.Load(); l != nil && l.Full() && !s.decide.Draining() {
		return decide.ErrConnections
	}
	if err := s.decide.Unready(); err != nil {
		return err
	}
	if err := s.store.answers(r.Context(), s.cfg.Limiter); err != nil {
		return err
	}
	return s.reply(w, r, http.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
}

// storeCheck caches whether the store answered its last readiness check. The store is checked at most once a second,
// because anyone may ask for readiness and each check reads the store.
type storeCheck struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

func (c *storeCheck) answers(ctx context.Context, lim *weir.Limiter) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < time.Second {
		return c.err
	}
	// other callers wait for the answer too
	_, c.err = admin.New(lim).Limits.Get(context.WithoutCancel(ctx), admin.Scope{})
	if errors.Is(c.err, weir.ErrNotFound) {
		c.err = nil // a store without limits also answers
	}
	if c.err == nil {
		_, c.err = parts.Of(lim).Policies.Owned(context.WithoutCancel(ctx))
	}
	c.at = time.Now()
	return c.err
}

// whoami returns the caller's principal, and what it may do.
func (s *probes) whoami(w http.ResponseWriter, r *http.Request) error {
	q, err := parameters(r)
	if err == nil && q.Has("namespace") {
		err = badField("namespace", "has no meaning here: the token determines it")
	}
	if err != nil {
		return err
	}
	v := callerOf(r)
	entities, resources := v.Bound()
	return s.reply(w, r, http.StatusOK, struct {
		Principal   string            `json:"principal"`
		Roles       []auth.Role       `json:"roles"`
		Permissions []auth.Permission `json:"permissions"`
		Namespaces  []string          `json:"namespaces"`
		Namespace   string            `json:"namespace"`
		Entities    []string          `json:"entities,omitempty"`
		Resources   []string          `json:"resources,omitempty"`
	}{
		v.Audit("http"), v.Roles(), v.Permissions(), v.Namespaces(), v.Namespace(s.cfg.Limiter.Namespace()),
		entities, resources,
	})
}

//go:embed openapi.json
var openAPIDocument []byte

func (s *probes) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header()["Content-Type"] = jsonType
	write(w, http.StatusOK, openAPIDocument)
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
