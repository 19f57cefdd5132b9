package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest"
)

// kind is a kind of problem: what a client may branch on. Kinds are documented in docs/guide/http.md.
type kind struct {
	status int
	uri    string
	title  string
}

const (
	guide = "https://github.com/weirlimits/weir/blob/main/docs/guide/http.md#"
	iana  = "https://iana.org/assignments/http-problem-types#"
)

var (
	kindInvalid     = &kind{http.StatusBadRequest, guide + "invalid", "The request is not valid"}
	kindForeign     = &kind{http.StatusForbidden, guide + "cross-origin", "The request comes from another site's page"}
	kindNotFound    = &kind{http.StatusNotFound, guide + "not-found", "Not found"}
	kindMethod      = &kind{http.StatusMethodNotAllowed, guide + "method", "The method is not allowed here"}
	kindExists      = &kind{http.StatusConflict, guide + "exists", "It exists already"}
	kindConflict    = &kind{http.StatusConflict, guide + "conflict", "It was changed meanwhile"}
	kindSettled     = &kind{http.StatusConflict, guide + "settled", "The lease id is used up"}
	kindExpired     = &kind{http.StatusGone, guide + "expired", "The lease has expired"}
	kindTooLarge    = &kind{http.StatusRequestEntityTooLarge, guide + "too-large", "The body is too large"}
	kindMedia       = &kind{http.StatusUnsupportedMediaType, guide + "media-type", "The body is of the wrong type"}
	kindBurst       = &kind{http.StatusUnprocessableEntity, guide + "exceeds-burst", "The request is larger than a limit's burst"}
	kindNoLimits    = &kind{http.StatusUnprocessableEntity, guide + "no-limits", "No limits apply"}
	kindExceeded    = &kind{http.StatusTooManyRequests, iana + "quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded"}
	kindInternal    = &kind{http.StatusInternalServerError, guide + "internal", "Internal error"}
	kindUnavailable = &kind{http.StatusServiceUnavailable, iana + "temporary-reduced-capacity", "Request cannot be satisfied due to temporary server capacity constraints"}
)

// httpError is a mistake that only HTTP can make.
type httpError struct {
	kind          *kind
	detail, field string
	errors        manifest.Errors // of a manifest
}

// Error returns the detail.
func (e *httpError) Error() string { return e.detail }

var (
	errTooLarge = &httpError{kind: kindTooLarge, detail: "at most 1 MiB is read"}
	errNoRoute  = &httpError{kind: kindNotFound, detail: "no such path; /v1/openapi.json lists what there is"}
	errForeign  = &httpError{kind: kindForeign, detail: "a browser sent this request on behalf of another site"}
	// errNoLease is all that is said about an id that was not made here, whatever is wrong with it.
	errNoLease  = &httpError{kind: kindNotFound, detail: "no such lease"}
	errGone     = &httpError{kind: kindExpired, detail: "an expired lease counts as committed: its tokens are spent"}
	errDraining = &httpError{kind: kindUnavailable, detail: "the server is shutting down"}
	errTooLong  = &httpError{kind: kindExceeded, detail: "others came first: not admitted in the time given to wait"}
)

// problem is an error as the client gets it.
type problem struct {
	kind          *kind
	detail, field string
	retryAfter    time.Duration // with a jitter
	over          *weir.ExceededError
	errors        manifest.Errors
}

// problemOf says what a client may know of an error. known is false of an error that was not foreseen.
func problemOf(err error) (p problem, known bool) {
	var (
		local  *httpError
		over   *weir.ExceededError
		config *weir.ConfigError
		store  *weir.StoreError
	)
	p.detail = err.Error()
	switch {
	case errors.As(err, &local):
		p.kind, p.detail, p.field, p.errors = local.kind, local.detail, local.field, local.errors
	case errors.As(err, &over):
		p.kind, p.detail, p.over = kindExceeded, over.Error(), over
		p.retryAfter = jittered(over.RetryAfter)
	case errors.Is(err, weir.ErrExceedsBurst):
		p.kind = kindBurst
	case errors.Is(err, weir.ErrNoLimits):
		p.kind = kindNoLimits
	case errors.Is(err, weir.ErrSettled), errors.Is(err, weir.ErrRolledBack), errors.Is(err, weir.ErrCommitted):
		p.kind, p.detail = kindSettled, "the lease was adjusted or rolled back under this id before; nothing was changed now"
	case errors.Is(err, weir.ErrExpired):
		p.kind, p.detail = kindExpired, errGone.detail
	case errors.Is(err, weir.ErrUnavailable), errors.As(err, &store), errors.Is(err, weir.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p.kind, p.detail = kindUnavailable, "the store does not answer, or not in time"
	case errors.Is(err, weir.ErrBadCursor):
		p.kind, p.detail, p.field = kindInvalid, "after: is not a cursor of this list", "after"
	case errors.As(err, &config):
		p.kind, p.detail, p.field = kindInvalid, config.Error(), config.Field
	case errors.Is(err, weir.ErrNoUsage):
		p.kind, p.detail = kindNotFound, "usage: the store keeps none"
	case errors.Is(err, weir.ErrNotFound):
		p.kind = kindNotFound
	case errors.Is(err, weir.ErrExists):
		p.kind = kindExists
	case errors.Is(err, weir.ErrConflict):
		p.kind = kindConflict
	default:
		return problem{kind: kindInternal, detail: "the error was logged"}, false
	}
	if p.kind == kindUnavailable || p.kind == kindExceeded && p.over == nil {
		p.retryAfter = jittered(time.Second)
	}
	return p, true
}

// fail answers with an error. What is not the client's business is logged instead.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, known := problemOf(err)
	switch {
	case !known:
		s.trouble(r, "a request failed", err)
	case p.kind == kindUnavailable && r.Context().Err() == nil:
		s.trouble(r, "the store does not answer", err)
	}
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = problemType, noStore
	if p.retryAfter > 0 {
		setRetryAfter(h, p.retryAfter)
	}
	if p.over != nil && len(p.over.Statuses) > 0 {
		s.setLimits(h, p.over.Statuses[0].Entity, p.over.Statuses)
	}
	buf := buffers.Get().(*buffer)
	defer buf.free()
	buf.b = p.append(buf.b[:0])
	send(w, p.kind.status, buf.b)
}

func (p *problem) append(b []byte) []byte {
	b = appendString(append(b, `{"type":`...), p.kind.uri)
	b = appendString(append(b, `,"title":`...), p.kind.title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.kind.status), 10)
	b = appendString(append(b, `,"detail":`...), p.detail)
	if p.field != "" {
		b = appendString(append(b, `,"field":`...), p.field)
	}
	if p.retryAfter > 0 {
		b = appendSeconds(append(b, `,"retry_after":`...), p.retryAfter)
	}
	if p.over != nil {
		b = appendViolated(append(b, `,"violated-policies":`...), p.over.Statuses)
		b = appendStatuses(append(b, `,"limits":`...), p.over.Statuses)
	}
	if len(p.errors) > 0 {
		if text, err := json.Marshal(p.errors); err == nil { // text and numbers: always
			b = append(append(b, `,"errors":`...), text...)
		}
	}
	return append(b, '}', '\n')
}

// appendViolated appends the names of the limits that refused, as in the RateLimit fields, longest to wait for first.
func appendViolated(b []byte, statuses []weir.LimitStatus) []byte {
	var refused []*weir.LimitStatus
	for i := range statuses {
		if statuses[i].Refused {
			refused = append(refused, &statuses[i])
		}
	}
	slices.SortStableFunc(refused, func(x, y *weir.LimitStatus) int { return int(min(max(y.RetryAfter-x.RetryAfter, -1), 1)) })
	b = append(b, '[')
	for i, st := range refused {
		if i > 0 {
			b = append(b, ',')
		}
		name := st.Limit
		if st.Entity != statuses[0].Entity {
			name += "@" + st.Entity
		}
		b = appendString(b, name)
	}
	return append(b, ']')
}

// trouble logs an error, but not more than one a second: when the store is away, every request has one.
func (s *Server) trouble(r *http.Request, what string, err error) {
	now := time.Now().UnixNano()
	last := s.logged.Load()
	if now-last < int64(time.Second) || !s.logged.CompareAndSwap(last, now) {
		return
	}
	s.cfg.Log.LogAttrs(r.Context(), slog.LevelError, "trouble with a request",
		slog.String("what", what), slog.String("route", r.Pattern), slog.Any("error", err))
}
