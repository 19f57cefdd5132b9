package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// usageQuery reads the selection of usage. Usage by store covers all namespaces together.
func (q query) usageQuery(r *http.Request) (admin.UsageQuery, error) {
	u := admin.UsageQuery{
		By: admin.UsageBy(q.Get("by")), Entity: q.Get("entity"), Resource: q.Get("resource"),
		Window: admin.Window(q.Get("window")), After: q.Get("after"), Max: q.max,
	}
	if u.By == admin.ByStore && !callerOf(r).Everywhere(auth.Read) {
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
func runningWindow(ctx context.Context, lim *weir.Limiter, u admin.UsageQuery) ([]byte, error) {
	if u.Window == "" {
		u.Window = admin.Hourly
	}
	u.From, u.Max = time.Now(), 0
	sum, err := admin.New(lim).Usage.Sum(ctx, u)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sum.Total)
}
