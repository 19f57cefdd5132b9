package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
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

// overview sends the recent decisions, once or as server-sent events.
func (s streams) overview(w http.ResponseWriter, r *http.Request) error {
	q, err := parameters(r, "max")
	if err != nil {
		return err
	}
	namespace := q.Get("namespace")
	lim, err := s.in(r, auth.Access{Namespace: namespace})
	if err != nil {
		return err
	}
	namespace = lim.Namespace()
	if s.cfg.Metrics == nil {
		return errNoMetrics
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		w.Header()["Content-Type"], w.Header()["Cache-Control"] = jsonType, noStore
		return s.send(w, r, http.StatusOK, append(s.cfg.Metrics.OverviewJSON(namespace), '\n'))
	}
	return s.stream(w, r, "overview", q.max, func(ctx context.Context, send func([]byte) error) error {
		if !s.cfg.Metrics.Follow(ctx, namespace, send) {
			return decide.ErrOverloaded
		}
		return nil
	})
}
