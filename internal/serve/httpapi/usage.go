package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// usageNames are the parameters that select usage.
var usageNames = []string{"by", "entity", "resource", "window", "from", "to"}

// usageQuery reads the selection of usage. Usage by store covers all namespaces together.
func (q query) usageQuery(r *http.Request) (weir.UsageQuery, error) {
	u := weir.UsageQuery{
		By: weir.UsageBy(q.Get("by")), Entity: q.Get("entity"), Resource: q.Get("resource"),
		Window: weir.Window(q.Get("window")), After: q.Get("after"), Max: q.max,
	}
	if u.By == weir.ByStore && !callerOf(r).Everywhere(auth.Read) {
		return u, decide.ErrForbidden
	}
	var err error
	if u.From, err = q.time("from"); err == nil {
		u.To, err = q.time("to")
	}
	return u, err
}

func (q query) time(name string) (t time.Time, err error) {
	if text := q.Get(name); text != "" {
		if t, err = time.Parse(time.RFC3339, text); err != nil {
			return t, badField(name, "must be a time as in 2026-11-21T13:00:00Z")
		}
	}
	return t, nil
}

// listUsage lists windows, ordered by start.
func (s *Server) listUsage(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, append([]string{"after", "max"}, usageNames...)...)
	if err != nil {
		return err
	}
	u, err := q.usageQuery(r)
	if err != nil {
		return err
	}
	p, err := q.lim.Usage(r.Context(), u)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(p.Windows, p.Next, same))
}

// summarizeUsage sums up all selected windows.
func (s *Server) summarizeUsage(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, usageNames...)
	if err != nil {
		return err
	}
	u, err := q.usageQuery(r)
	if err != nil {
		return err
	}
	sum, err := q.lim.SummarizeUsage(r.Context(), u)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, sum)
}

// topUsage ranks by who spent most.
func (s *Server) topUsage(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "by", "limit", "resource", "window", "from", "to", "max")
	if err != nil {
		return err
	}
	u, err := q.usageQuery(r)
	if err != nil {
		return err
	}
	top, err := q.lim.TopUsage(r.Context(), weir.TopQuery{
		By: u.By, Limit: q.Get("limit"), Resource: u.Resource, Window: u.Window, From: u.From, To: u.To, Max: q.max,
	})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(top, "", same))
}

// streamEvery is the interval between looks at the current window.
const streamEvery = 2 * time.Second

// streamUsage sends the current window as server-sent events: at once, and then whenever it has changed.
func (s *Server) streamUsage(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "by", "entity", "resource", "window", "max")
	if err != nil {
		return err
	}
	u, err := q.usageQuery(r)
	if err != nil {
		return err
	}
	return s.stream(w, r, "usage", q.max, func(ctx context.Context, send func([]byte) error) error {
		tick := time.NewTicker(streamEvery)
		defer tick.Stop()
		var last []byte
		for {
			event, err := runningWindow(ctx, q.lim, u)
			if err == nil && !bytes.Equal(event, last) {
				last, err = event, send(event)
			}
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
	})
}

// runningWindow returns the current window as JSON on one line.
func runningWindow(ctx context.Context, lim *weir.Limiter, u weir.UsageQuery) ([]byte, error) {
	if u.Window == "" {
		u.Window = weir.Hourly
	}
	u.From, u.Max = time.Now(), 0
	sum, err := lim.SummarizeUsage(ctx, u)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sum.Total)
}
