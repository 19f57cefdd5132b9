package metrics

import (
	"net/http"
	"sync/atomic"
	"time"
)

// traffic counts requests.
type traffic struct {
	http, rpc requests
	shed      atomic.Uint64
	tracing   *Tracing
}

// requests counts the requests of one protocol.
type requests struct {
	took     timings[requestKey]
	inFlight atomic.Int64
}

// requestKey is a kind of request: its route and the class of its status, or its method and its code.
type requestKey struct{ route, status string }

// Requests counts the requests that next handles, and records spans for them if tracing is on. It sees the routes of
// a ServeMux inside next.
func (t *traffic) Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		t.http.inFlight.Add(1)
		sw := &statusWriter{ResponseWriter: w}
		r, sp := t.tracing.request(r)
		defer func() {
			t.http.inFlight.Add(-1)
			t.http.took.observe(requestKey{routeOf(r), class(sw.status)}, time.Since(began))
			sp.answered(r, sw.status)
		}()
		next.ServeHTTP(sw, r)
	})
}

// Shed counts a request that was rejected because there were too many.
func (t *traffic) Shed() { t.shed.Add(1) }

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

// report adds the request metrics.
func (t *traffic) report(s *Scrape) {
	for _, p := range []struct {
		name, route, status string
		*requests
	}{{"http", "route", "status", &t.http}, {"grpc", "method", "code", &t.rpc}} {
		var took []timed
		p.took.all(func(k requestKey, h *histogram) {
			took = append(took, timed{h, []string{p.route, k.route, p.status, k.status}})
		})
		s.histogram("weir."+p.name+".request.duration", "Duration of requests.", took...)
		s.gauge("weir."+p.name+".requests.in_flight", "Requests in progress.",
			value(p.inFlight.Load()))
	}
	s.count("weir.http.shed", "Requests rejected because there were too many.",
		value(t.shed.Load()))
}
