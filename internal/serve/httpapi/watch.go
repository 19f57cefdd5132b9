package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// heartbeat is how often a stream without events sends a sign of life, because proxies close silent connections.
const heartbeat = 15 * time.Second

var errWatched = &httpError{kind: kindUnavailable, detail: "too many different buckets are watched: try again later"}

// watch sends what an entity can spend on a resource as server-sent events: at once, and then whenever it has changed, at
// most once per tick of the poller that all watchers share.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "entity", "resource", "max")
	if err != nil {
		return err
	}
	if err := s.streams(r); err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		q.max = 1
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamFor)
	defer cancel()
	who := visitOf(r).Name
	states, ended := make(chan weir.Availability), make(chan error, 1)
	go func() {
		key := watch.Key{Namespace: q.lim.Namespace(), Entity: q.Get("entity"), Resource: q.Get("resource")}
		ended <- s.cfg.Watch.Watch(ctx, who, key, func(av weir.Availability) error {
			select {
			case states <- av:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	flush := http.NewResponseController(w).Flush
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	var b []byte
	for sent := 0; ; {
		b = b[:0]
		select {
		case err := <-ended:
			switch {
			case sent > 0:
				return nil // the next connection gets the error
			case errors.Is(err, watch.ErrTooMany):
				return errWatched
			case errors.Is(err, watch.ErrClosed):
				return errDraining
			}
			return err
		case <-s.draining:
			if sent == 0 {
				return errDraining
			}
			return nil
		case <-beat.C:
			if sent == 0 {
				continue // the store is slow, or is about to return an error
			}
			b = append(b, ": alive\n\n"...)
		case av := <-states:
			if sent++; sent == 1 {
				h := w.Header()
				h["Content-Type"], h["Cache-Control"] = []string{"text/event-stream"}, noStore
				w.WriteHeader(http.StatusOK)
			}
			b = append(b, "event: state\ndata: "...)
			b = append(appendAvailability(b, &av), "\n\n"...)
		}
		if _, err := w.Write(b); err != nil {
			return nil // the client is gone
		}
		_ = flush()
		if sent == q.max {
			return nil
		}
	}
}

// appendAvailability appends the response of GET /v1/available.
func appendAvailability(b []byte, av *weir.Availability) []byte {
	b = appendTime(append(b, `{"at":`...), av.At)
	b = appendStatuses(append(b, `,"limits":`...), av.Statuses)
	return append(b, '}')
}
