package httpapi

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// kind is a kind of problem, on which clients may branch. Kinds are documented in docs/integrate/http.md.
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
	kindNoUsage     = kindOf(http.StatusNotFound, "no-usage", "No usage is kept")
	kindMethod      = kindOf(http.StatusMethodNotAllowed, "method", "The method is not allowed here")
	kindExists      = kindOf(http.StatusConflict, "exists", "It already exists")
	kindConflict    = kindOf(http.StatusConflict, "conflict", "It was changed in the meantime")
	kindStale       = kindOf(http.StatusPreconditionFailed, "stale", "It is not as it was read")
	kindSettled     = kindOf(http.StatusConflict, "settled", "The id is used up")
	kindExpired     = kindOf(http.StatusGone, "expired", "The lease has expired")
	kindTooLarge    = kindOf(http.StatusRequestEntityTooLarge, "too-large", "The body is too large")
	kindMedia       = kindOf(http.StatusUnsupportedMediaType, "media-type", "The body is of the wrong type")
	kindBurst       = answer.ExceedsBurst
	kindNoLimits    = kindOf(http.StatusUnprocessableEntity, "no-limits", "No limits apply")
	kindUnknown     = answer.UnknownEntity
	kindBuckets     = answer.BucketQuota
	kindExceeded    = answer.Exceeded
	kindMaxDebt     = kindOf(http.StatusUnprocessableEntity, "max-debt", "A limit may not go further into debt")
	kindInternal    = answer.Internal
	kindOverloaded  = kindOf(http.StatusServiceUnavailable, "overloaded", "The server has too much to do")
	kindUnavailable = answer.Unavailable
)

// httpError is an error that occurs only over HTTP.
type httpError struct {
	kind          *kind
	detail, field string
	more          any // more members of the answer; nil for none
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
)

// problem is an error as sent to the client.
type problem struct {
	decide.Fault // RetryAfter includes its jitter
	kind         *kind
	more         any  // more members
	brief        bool // leaves out the statuses of limits
}

// kinds has the kind of problem for each code.
var kinds = [decide.Codes]*kind{
	weir.CodeOK:            kindInternal, // never: it is no error
	weir.CodeInternal:      kindInternal,
	weir.CodeInvalid:       kindInvalid,
	weir.CodeExceeded:      kindExceeded,
	weir.CodeExceedsBurst:  kindBurst,
	weir.CodeNoLimits:      kindNoLimits,
	weir.CodeNotFound:      kindNotFound,
	weir.CodeNoUsage:       kindNoUsage,
	weir.CodeExists:        kindExists,
	weir.CodeConflict:      kindConflict,
	weir.CodeSettled:       kindSettled,
	weir.CodeExpired:       kindExpired,
	weir.CodeUnavailable:   kindUnavailable,
	weir.CodeCanceled:      kindUnavailable,
	weir.CodeMaxDebt:       kindMaxDebt,
	weir.CodeUnknownEntity: kindUnknown,
	weir.CodeBucketQuota:   kindBuckets,
	decide.Unauthenticated: kindNoToken,
	decide.Forbidden:       kindForbidden,
	decide.Overloaded:      kindOverloaded,
	decide.ShuttingDown:    kindUnavailable,
	decide.Watched:         kindUnavailable,
}

// problemOf returns the problem to send for an error. Details that the client must not see go only to the log.
func (s *Server) problemOf(r *http.Request, err error) problem {
	var (
		local *httpError
		stale *api.ChangedError
	)
	switch {
	case errors.As(err, &local):
		f := decide.Fault{Detail: local.detail, Field: local.field}
		return problem{Fault: f, kind: local.kind, more: local.more}
	case errors.As(err, &stale):
		return problem{Fault: decide.Fault{Detail: stale.Detail}, kind: kindStale}
	}
	f := s.decide.Fault(r.Context(), err, r.RemoteAddr, slog.String("route", r.Pattern))
	if f.RetryAfter > 0 {
		f.RetryAfter = answer.Jittered(f.RetryAfter)
	}
	return problem{Fault: f, kind: kinds[f.Code]}
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := s.problemOf(r, err)
	if p.kind == kindOverloaded && s.cfg.Metrics != nil {
		s.cfg.Metrics.Shed()
	}
	h := w.Header()
	format := s.format(r)
	h["Content-Type"], h["Cache-Control"] = []string{format.MediaType()}, noStore
	if p.kind == kindNoToken {
		h["Www-Authenticate"] = []string{"Bearer"}
	}
	if p.RetryAfter > 0 {
		setRetryAfter(h, p.RetryAfter)
	}
	sent := p.public()
	format.Fields(sent.Statuses, p.RetryAfter, h.Set)
	if p.Over != nil && len(p.Over.Statuses) > 0 {
		answer.SetFields(h, p.Over.Statuses[0].Entity, p.Over.Statuses, s.cfg.LegacyHeaders)
		if p.Over.Degraded {
			h.Set("Weir-Degraded", "store-unavailable")
		}
	}
	buf := buffers.Get().(*buffer)
	defer buf.free()
	buf.b = format.Append(buf.b[:0], sent)
	if s.send(w, r, p.kind.Status, buf.b) != nil {
		p.shorten()
		write(w, p.kind.Status, format.Append(buf.b[:0], p.public()))
	}
}

// format returns the format of a problem with a request.
func (s *Server) format(r *http.Request) answer.Format {
	accepts := strings.Join(r.Header["Accept"], ",")
	if !strings.HasPrefix(r.Pattern, "POST /v1/acquire") || strings.Contains(accepts, "application/problem+json") {
		return answer.ProblemJSON
	}
	return s.cfg.Errors
}

func (p *problem) append(b []byte) []byte { return p.public().Append(b) }

// shorten leaves out of a refusal what is long if there are many limits.
func (p *problem) shorten() {
	if p == nil {
		return
	}
	p.more = nil
	if p.Over != nil {
		over := *p.Over
		over.Statuses = nil
		p.Over, p.Detail = &over, "a limit was exceeded: which ones is left out for lack of memory"
	}
}

// public returns the problem as it is sent.
func (p *problem) public() *answer.Problem {
	out := answer.Problem{
		Kind: p.kind, Detail: p.Detail, Field: p.Field, RetryAfter: p.RetryAfter,
		Refused: p.Over != nil, Brief: p.brief,
	}
	if p.Over != nil {
		out.Degraded, out.Over = p.Over.Degraded, p.Over.Over
		if out.Statuses = p.Over.Statuses; len(out.Statuses) > 0 {
			out.Entity = out.Statuses[0].Entity
		}
	}
	if p.more != nil {
		out.More, _ = json.Marshal(p.more) // text and numbers always encode
	}
	return &out
}

// trouble logs an error, at most one per second: when the store is down, every request has one.
func (s *Server) trouble(r *http.Request, what string, err error) {
	s.decide.Trouble(r.Context(), what, err, slog.String("route", r.Pattern))
}
