package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// runningUsage selects the usage of the current window. Usage by store covers all namespaces together.
type runningUsage struct {
	By       admin.UsageBy `json:"by" in:"query"`
	Entity   string        `json:"entity" in:"query" about:"entity"`
	Resource string        `json:"resource" in:"query" about:"resource"`
	Window   admin.Window  `json:"window" in:"query"`
	Max      int           `json:"max" in:"query" range:"1..1000"`
}

// Everywhere implements [api.Wide].
func (q *runningUsage) Everywhere() bool { return q.By == admin.ByStore }

// streamEvery is the interval between looks at the current window.
const streamEvery = 2 * time.Second

// streamUsage sends the current window as server-sent events: at once, and then whenever it has changed.
func (s streams) streamUsage(w http.ResponseWriter, r *http.Request) error {
	var q runningUsage
	lim, err := s.operand(r, &q, api.FieldsOf(reflect.TypeFor[runningUsage]()), false)
	if err != nil {
		return err
	}
	u := admin.UsageQuery{
		By: q.By, Entity: q.Entity, Resource: q.Resource, Window: cmp.Or(q.Window, admin.Hourly),
	}
	return s.stream(w, r, "usage", q.Max, func(ctx context.Context, send func([]byte) error) error {
		tick := time.NewTicker(streamEvery)
		defer tick.Stop()
		var last []byte
		for {
			event, err := s.runningWindow(ctx, callerOf(r), lim, u)
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

// runningWindow returns the current window as JSON on one line, when it is the caller's turn.
func (s streams) runningWindow(
	ctx context.Context, c *decide.Caller, lim *weir.Limiter, u admin.UsageQuery,
) ([]byte, error) {
	if err := s.decide.Turn(ctx, c, lim); err != nil {
		return nil, err
	}
	defer c.Leave()
	u.From = time.Now()
	sum, err := admin.New(lim).Usage.Sum(ctx, u)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sum.Total)
}
