package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/serve/decide"
)

const (
	// streamFor is how long a stream lasts. EventSource then reconnects by itself.
	streamFor = time.Minute
	// heartbeat is how often a stream sends a sign of life, because proxies close silent connections.
	heartbeat = 15 * time.Second
	// slowWrite is how long a client may take to receive an event.
	slowWrite = 5 * time.Second
)

var errEnough = errors.New("as many events as were requested")

// source sends the data of events, each as JSON on one line, until ctx ends or send returns an error. Send does not
// keep its argument.
type source func(ctx context.Context, send func(data []byte) error) error

// streams are the routes that answer with server-sent events.
type streams struct{ *Server }

// stream answers with server-sent events: at most the given number, or any number if that is 0. An error of the source
// is the answer if nothing was sent; otherwise the next connection gets it.
func (s streams) stream(w http.ResponseWriter, r *http.Request, event string, most int, from source) error {
	if err := s.decide.Stream(callerOf(r)); err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		most = 1
	}
	e := &events{
		prefix: []byte("event: " + event + "\ndata: "), most: most, w: w, out: http.NewResponseController(w),
		reserve: func(bytes int) bool { return s.decide.Reserve(r.Context(), callerOf(r), bytes, 0) },
	}
	var beats sync.WaitGroup
	defer beats.Wait()
	ctx, end := s.decide.Long(r.Context())
	defer end()
	ctx, cancel := context.WithTimeout(ctx, streamFor)
	defer cancel()
	beats.Go(func() { e.beat(ctx) })
	err := from(ctx, e.send)
	switch {
	case e.sent > 0:
		return nil
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// events writes a stream of events.
type events struct {
	prefix  []byte
	most    int
	reserve func(bytes int) bool

	mu   sync.Mutex
	w    http.ResponseWriter
	out  *http.ResponseController
	sent int
	held int // the size of the largest event
}

func (e *events) send(data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.reserve(len(data) - e.held) {
		return decide.ErrUnread
	}
	e.held = max(e.held, len(data))
	if e.sent == 0 {
		h := e.w.Header()
		h["Content-Type"], h["Cache-Control"] = []string{"text/event-stream"}, noStore
		e.w.WriteHeader(http.StatusOK)
	}
	e.sent++
	if err := e.write(e.prefix, data, []byte("\n\n")); err != nil {
		return err
	}
	if e.sent == e.most {
		return errEnough
	}
	return nil
}

func (e *events) write(parts ...[]byte) error {
	_ = e.out.SetWriteDeadline(time.Now().Add(slowWrite)) // not every writer supports deadlines
	for _, b := range parts {
		if _, err := e.w.Write(b); err != nil {
			return err
		}
	}
	return e.out.Flush()
}

// beat sends signs of life until ctx ends. There are none before the first event, because that may be an error.
func (e *events) beat(ctx context.Context) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e.mu.Lock()
		if e.sent > 0 {
			_ = e.write([]byte(": alive\n\n"))
		}
		e.mu.Unlock()
	}
}
