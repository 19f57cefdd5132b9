package metrics

import (
	"net/http"
	"sync/atomic"
	"time"
)

// requests counts the requests of one protocol.
type requests struct {
	took     timings[requestKey]
	inFlight atomic.Int64
	shed     atomic.Uint64
}

// requestKey is a kind of request: its route and the class of its status, or its method and its code.
type requestKey struct{ route, status string }

// Requests counts the requests that next handles, and records spans for them if tracing is on. It sees the routes of
// a ServeMux inside next.
func (m *Metrics) Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		m.http.inFlight.Add(1)
		sw := &statusWriter{ResponseWriter: w}
		r, sp := m.cfg.Tracing.request(r)
		defer func() {
			m.http.inFlight.Add(-1)
			m.http.took.observe(requestKey{routeOf(r), class(sw.status)}, time.Since(began))
			sp.answered(r, sw.status)
		}()
		next.ServeHTTP(sw, r)
	})
}

// Shed counts a request that was rejected because there were too many.
func (m *Metrics) Shed() { m.http.shed.Add(1) }

// routeOf returns the pattern that routed a request. There are few patterns, and they contain no IDs.
func routeOf(r *http.Request) string {
	if r.Pattern == "" {
		return "none"
	}
	return r.Pattern
}

var classes = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

// class returns the class of a status; no status means 200.
func class(status int) string {
	switch {
	case status == 0:
		return "2xx"
	case status < 100 || status > 599:
		return other
	}
	return classes[status/100-1]
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status < http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// traffic adds the request metrics.
func (m *Metrics) traffic(s *Scrape) {
	for _, p := range []struct {
		name, route, status string
		*requests
	}{{"http", "route", "status", &m.http}, {"grpc", "method", "code", &m.rpc}} {
		var took []timed
		p.took.all(func(k requestKey, h *histogram) {
			took = append(took, timed{h, []string{p.route, k.route, p.status, k.status}})
		})
		s.histogram("weir."+p.name+".request.duration", "Duration of requests.", took...)
		s.gauge("weir."+p.name+".requests.in_flight", "Requests in progress.",
			point[float64]{v: float64(p.inFlight.Load())})
	}
	s.count("weir.http.shed", "Requests rejected because there were too many.",
		point[int64]{v: int64(m.http.shed.Load())})
	s.gauge("weir.overview.streams", "Open streams of the overview.", point[float64]{v: float64(m.streams.len())})
}
