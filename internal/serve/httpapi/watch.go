package httpapi

import (
	"context"
	"net/http"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// watch sends what an entity can spend on a resource as server-sent events: at once, and then whenever it has changed,
// at most once per tick of the poller that all watchers share.
func (s streams) watch(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "entity", "resource", "max")
	if err != nil {
		return err
	}
	who := callerOf(r).Name
	key := watch.Key{Namespace: q.lim.Namespace(), Entity: q.Get("entity"), Resource: q.Get("resource")}
	return s.stream(w, r, "state", q.max, func(ctx context.Context, send func([]byte) error) error {
		var b []byte
		return s.cfg.Watch.Watch(ctx, who, key, func(av weir.Availability) error {
			b = appendAvailability(b[:0], &av)
			return send(b)
		})
	})
}

// appendAvailability appends the response of GET /v1/available.
func appendAvailability(b []byte, av *weir.Availability) []byte {
	b = appendTime(append(b, `{"at":`...), av.At)
	b = appendStatuses(append(b, `,"limits":`...), av.Statuses)
	return append(b, '}')
}
