package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

// Metrics collects and serves a server's metrics. internal/serve/metrics implements it.
type Metrics interface {
	// Requests counts the requests that next answers.
	Requests(next http.Handler) http.Handler
	// Shed counts a request that was refused because of overload.
	Shed()
	// Handler answers scrapes.
	Handler() http.Handler
	// OverviewJSON returns recent decisions in a namespace; "*" means all namespaces.
	OverviewJSON(namespace string) []byte
	// Follow calls send with the overview at once and then every second, until ctx ends or send fails. If there are too
	// many followers, it returns false without calling send.
	Follow(ctx context.Context, namespace string, send func(overview []byte) error) bool
}

// allNamespaces stands for all namespaces in an overview.
const allNamespaces = "*"

// slowWrite is how long a client may take to receive an event.
const slowWrite = 5 * time.Second

func (s *Server) scrape(w http.ResponseWriter, r *http.Request) error {
	if s.cfg.Metrics == nil {
		return errNoMetrics
	}
	w.Header()["Cache-Control"] = noStore
	s.cfg.Metrics.Handler().ServeHTTP(w, r)
	return nil
}

// overview sends the recent decisions, once or as server-sent events.
func (s *Server) overview(w http.ResponseWriter, r *http.Request) error {
	q, err := parameters(r, "max")
	if err != nil {
		return err
	}
	namespace := q.Get("namespace")
	if namespace == allNamespaces {
		if v := visitOf(r); !v.Everywhere(v.need.role) {
			s.refused(r, "not all namespaces")
			return errForbidden
		}
	} else {
		lim, err := s.in(r, namespace)
		if err != nil {
			return err
		}
		namespace = lim.Namespace()
	}
	if s.cfg.Metrics == nil {
		return errNoMetrics
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		w.Header()["Content-Type"], w.Header()["Cache-Control"] = jsonType, noStore
		send(w, http.StatusOK, append(s.cfg.Metrics.OverviewJSON(namespace), '\n'))
		return nil
	}
	if r.Method == http.MethodHead {
		q.max = 1
	}
	return s.streamOverview(w, r, namespace, q.max)
}

var errEnough = errors.New("as many events as were asked for")

func (s *Server) streamOverview(w http.ResponseWriter, r *http.Request, namespace string, most int) error {
	if err := s.streams(r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamFor)
	defer cancel()
	go func() {
		select {
		case <-s.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	out := http.NewResponseController(w)
	sent := 0
	follows := s.cfg.Metrics.Follow(ctx, namespace, func(overview []byte) error {
		if sent == 0 {
			h := w.Header()
			h["Content-Type"], h["Cache-Control"] = []string{"text/event-stream"}, noStore
			w.WriteHeader(http.StatusOK)
		}
		_ = out.SetWriteDeadline(time.Now().Add(slowWrite)) // not every writer supports deadlines
		if _, err := w.Write(append(append([]byte("event: overview\ndata: "), overview...), "\n\n"...)); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if sent++; sent == most {
			return errEnough
		}
		return nil
	})
	if !follows {
		return errOverloaded
	}
	return nil
}
