package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// kind is a kind of problem, on which clients may branch. Kinds are documented in docs/guide/http.md.
type kind = answer.Kind

func kindOf(status int, name, title string) *kind {
	return &kind{Status: status, URI: answer.Guide + name, Title: title}
}

var (
	kindInvalid   = kindOf(http.StatusBadRequest, "invalid", "The request is not valid")
	kindNoToken   = kindOf(http.StatusUnauthorized, "unauthenticated", "The request has no valid token")
	kindForbidden = kindOf(http.StatusForbidden, "forbidden", "The token may not do this")
	kindHost      = kindOf(http.StatusMisdirectedRequest, "host",
		"The request names a host that is not this server's")
	kindForeign     = kindOf(http.StatusForbidden, "cross-origin", "The request comes from another site's page")
	kindNotFound    = kindOf(http.StatusNotFound, "not-found", "Not found")
	kindMethod      = kindOf(http.StatusMethodNotAllowed, "method", "The method is not allowed here")
	kindExists      = kindOf(http.StatusConflict, "exists", "It already exists")
	kindConflict    = kindOf(http.StatusConflict, "conflict", "It was changed in the meantime")
	kindStale       = kindOf(http.StatusPreconditionFailed, "stale", "It is not as it was read")
	kindSettled     = kindOf(http.StatusConflict, "settled", "The lease id is used up")
	kindExpired     = kindOf(http.StatusGone, "expired", "The lease has expired")
	kindTooLarge    = kindOf(http.StatusRequestEntityTooLarge, "too-large", "The body is too large")
	kindMedia       = kindOf(http.StatusUnsupportedMediaType, "media-type", "The body is of the wrong type")
	kindBurst       = answer.ExceedsBurst
	kindNoLimits    = kindOf(http.StatusUnprocessableEntity, "no-limits", "No limits apply")
	kindExceeded    = answer.Exceeded
	kindInternal    = answer.Internal
	kindOverloaded  = kindOf(http.StatusServiceUnavailable, "overloaded", "The server has too much to do")
	kindUnavailable = answer.Unavailable
)

// httpError is an error that occurs only over HTTP.
type httpError struct {
	kind          *kind
	detail, field string
	errors        strictyaml.Errors // of a manifest
}

// Error returns the detail.
func (e *httpError) Error() string { return e.detail }

var (
	errTooLarge = &httpError{kind: kindTooLarge, detail: "at most 1 MiB is read"}
	errNoRoute  = &httpError{kind: kindNotFound, detail: "no such path; /v1/openapi.json lists what there is"}
	errHost     = &httpError{kind: kindHost, detail: "this server does not answer requests for that host; allow it " +
		"with weir serve --allowed-host"}
	errForeign   = &httpError{kind: kindForeign, detail: "a browser sent this request on behalf of another site"}
	errNoMetrics = &httpError{kind: kindNotFound, detail: "this server keeps no metrics"}
	errCrowded   = &httpError{kind: kindOverloaded, detail: "too many connections are open; nothing was done: try " +
		"again, or another instance"}
)

// kinds are the kinds of problem of the errors that occur on every protocol.
var kinds = map[decide.Code]*kind{
	decide.Unauthenticated: kindNoToken, decide.Forbidden: kindForbidden, decide.Overloaded: kindOverloaded,
	decide.ShuttingDown: kindUnavailable, decide.NoLease: kindNotFound, decide.LeaseExpired: kindExpired,
}

// problem is an error as sent to the client.
type problem struct {
	kind          *kind
	detail, field string
	retryAfter    time.Duration // without the jitter that is added when it is sent
	over          *weir.ExceededError
	errors        strictyaml.Errors
}

// kindsOf has the kind of problem for each code of the limiter. A refusal by a limit has more; see problemOf.
var kindsOf = [weir.Codes]*kind{
	weir.CodeOK:           kindInternal, // never: it is no error
	weir.CodeInternal:     kindInternal,
	weir.CodeInvalid:      kindInvalid,
	weir.CodeExceeded:     kindExceeded,
	weir.CodeExceedsBurst: kindBurst,
	weir.CodeNoLimits:     kindNoLimits,
	weir.CodeNotFound:     kindNotFound,
	weir.CodeNoUsage:      kindNotFound,
	weir.CodeExists:       kindExists,
	weir.CodeConflict:     kindConflict,
	weir.CodeSettled:      kindSettled,
	weir.CodeExpired:      kindExpired,
	weir.CodeUnavailable:  kindUnavailable,
	weir.CodeCanceled:     kindUnavailable,
}

// detailsOf has the detail of each code whose errors have a text of their own only for the log.
var detailsOf = [weir.Codes]string{
	weir.CodeInternal:    "the error was logged",
	weir.CodeInvalid:     "after: is not a cursor of this list",
	weir.CodeNoUsage:     "usage: the store keeps none",
	weir.CodeSettled:     "the lease was adjusted or rolled back under this id before; nothing was changed now",
	weir.CodeExpired:     decide.ErrExpired.Detail,
	weir.CodeUnavailable: "the store does not answer, or not in time",
	weir.CodeCanceled:    "the store does not answer, or not in time",
}

// problemOf returns what a client may know about an error. known is false for an unexpected error.
func problemOf(err error) (p problem, known bool) {
	var (
		local  *httpError
		common *decide.Error
		over   *weir.ExceededError
		config *weir.ConfigError
		stale  *api.ChangedError
	)
	p.detail = err.Error()
	switch {
	case errors.As(err, &local):
		p.kind, p.detail, p.field, p.errors = local.kind, local.detail, local.field, local.errors
	case errors.As(err, &common):
		p.kind, p.detail = kinds[common.Code], common.Detail
	case errors.Is(err, decide.ErrTooLong):
		p.kind, p.detail = kindExceeded, "others came first: not admitted in the time given to wait"
	case errors.As(err, &stale):
		p.kind, p.detail = kindStale, stale.Detail
	case errors.As(err, &over):
		p.kind, p.detail, p.over = kindExceeded, over.Error(), over
		p.retryAfter = answer.Jittered(over.RetryAfter)
	default:
		code := weir.CodeOf(err)
		p.kind, p.detail = kindsOf[code], cmp.Or(detailsOf[code], p.detail)
		switch {
		case code == weir.CodeInternal:
			return p, false
		case code == weir.CodeInvalid && errors.As(err, &config):
			p.detail, p.field = config.Error(), config.Field
		case code == weir.CodeInvalid: // a bad cursor
			p.field = "after"
		}
	}
	if p.kind == kindUnavailable || p.kind == kindOverloaded || p.kind == kindExceeded && p.over == nil {
		p.retryAfter = answer.Jittered(time.Second)
	}
	return p, true
}

// fail answers with an error. Details that the client must not see go only to the log.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, known := problemOf(err)
	switch {
	case !known:
		s.trouble(r, "a request failed", err)
	case p.kind == kindOverloaded:
		if s.cfg.Metrics != nil {
			s.cfg.Metrics.Shed()
		}
		s.decide.Overload(r.Context(), slog.String("route", r.Pattern))
	case p.kind == kindUnavailable && r.Context().Err() == nil:
		s.trouble(r, "the store does not answer", err)
	}
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = problemType, noStore
	if p.kind == kindNoToken {
		h["Www-Authenticate"] = []string{"Bearer"}
	}
	if p.retryAfter > 0 {
		setRetryAfter(h, p.retryAfter)
	}
	if p.over != nil && len(p.over.Statuses) > 0 {
		answer.SetFields(h, p.over.Statuses[0].Entity, p.over.Statuses, s.cfg.LegacyHeaders)
		if p.over.Degraded {
			h.Set("Weir-Degraded", "store-unavailable")
		}
	}
	buf := buffers.Get().(*buffer)
	defer buf.free()
	buf.b = p.append(buf.b[:0])
	send(w, p.kind.Status, buf.b)
}

func (p *problem) append(b []byte) []byte {
	out := answer.Problem{
		Kind: p.kind, Detail: p.detail, Field: p.field, RetryAfter: p.retryAfter,
		Refused: p.over != nil,
	}
	if p.over != nil && len(p.over.Statuses) > 0 {
		out.Entity, out.Statuses = p.over.Statuses[0].Entity, p.over.Statuses
		out.Degraded, out.Over = p.over.Degraded, p.over.Over
	}
	if len(p.errors) > 0 {
		out.Errors, _ = json.Marshal(p.errors) // text and numbers always encode
	}
	return out.Append(b)
}

// trouble logs an error, at most one per second: when the store is down, every request has one.
func (s *Server) trouble(r *http.Request, what string, err error) {
	s.decide.Trouble(r.Context(), what, err, slog.String("route", r.Pattern))
}
