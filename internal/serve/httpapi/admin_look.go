package httpapi

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// eventJSON is a change of the catalog. Before is null for a creation, After for a deletion.
type eventJSON struct {
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`
	Before    json.RawMessage `json:"before"`
	After     json.RawMessage `json:"after"`
}

// listAudit lists changes, newest first.
func (s *Server) listAudit(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "subject", "after", "max")
	if err != nil {
		return err
	}
	subject := q.Get("subject")
	if inRegistry(subject) && !callerOf(r).Everywhere(auth.Read) {
		return decide.ErrForbidden
	}
	p, err := q.lim.Audit(r.Context(), weir.AuditQuery{Subject: subject, After: q.Get("after"), Max: q.max})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(p.Events, p.Next, func(e weir.AuditEvent) eventJSON { return eventJSON(e) }))
}

// inRegistry reports whether a subject's changes are kept in the registry of namespaces, not in a namespace.
func inRegistry(subject string) bool {
	return strings.HasPrefix(subject, "namespace:") || strings.HasPrefix(subject, "secret:")
}

// bucketJSON is the state of an entity on a resource. The id is a string because it has more bits than a JSON number holds.
type bucketJSON struct {
	Entity   string            `json:"entity"`
	Resource string            `json:"resource"`
	ID       string            `json:"id"`
	At       time.Time         `json:"at"`
	Limits   []bucketLimitJSON `json:"limits"`
}

type bucketLimitJSON struct {
	Limit     weir.Limit `json:"limit"`
	Override  bool       `json:"override,omitempty"`
	Available int64      `json:"available"`
	Debited   int64      `json:"debited"`
	Returned  int64      `json:"returned"`
}

func bucketOf(b weir.Bucket) bucketJSON {
	j := bucketJSON{b.Entity, b.Resource, strconv.FormatUint(b.ID, 16), b.At, make([]bucketLimitJSON, len(b.Limits))}
	for i, l := range b.Limits {
		j.Limits[i] = bucketLimitJSON{l.Limit, l.Override, l.Available, l.Debited, l.Returned}
	}
	return j
}

// listBuckets lists the buckets in use. Full buckets may be missing.
func (s *Server) listBuckets(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "entity", "resource", "after", "max")
	if err != nil {
		return err
	}
	p, err := q.lim.Buckets(r.Context(), weir.BucketQuery{
		Entity: q.Get("entity"), Resource: q.Get("resource"), After: q.Get("after"), Max: q.max,
	})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(p.Buckets, p.Next, bucketOf))
}

func (s *Server) showBucket(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r)
	if err != nil {
		return err
	}
	b, err := q.lim.Bucket(r.Context(), pathID(r, "entity"), pathID(r, "resource"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, bucketOf(b))
}

// resetBucket fills a bucket, even if it is in debt.
func (s *Server) resetBucket(w http.ResponseWriter, r *http.Request) error {
	q, r, err := s.change(r)
	if err != nil {
		return err
	}
	if err := noBody(r); err != nil {
		return err
	}
	return done(w, q.lim.ResetBucket(r.Context(), pathID(r, "entity"), pathID(r, "resource")))
}

// health reports that the process is alive.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, http.StatusOK, struct {
		Status  string `json:"status"`
		Version string `json:"version,omitempty"`
	}{"ok", s.cfg.Version})
}

// ready reports that the store answers and that the server is not shutting down.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
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
	_, a.err = lim.Limits(context.WithoutCancel(ctx), weir.Scope{}) // other callers wait for the answer too
	if errors.Is(a.err, weir.ErrNotFound) {
		a.err = nil // a store without limits also answers
	}
	a.at = time.Now()
	return a.err
}

// whoami tells the caller its principal, roles and namespaces.
func (s *Server) whoami(w http.ResponseWriter, r *http.Request) error {
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

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header()["Content-Type"] = jsonType
	send(w, http.StatusOK, openAPIDocument)
	return nil
}
