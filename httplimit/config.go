package httplimit

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

// Config configures a [Middleware]. Limiter, Entity, Resource and Tokens are required.
type Config struct {
	// Limiter makes the decisions; for another namespace, use the result of [weir.Limiter.In]. The middleware does not
	// close it.
	Limiter *weir.Limiter
	// Entity returns who sends a request: [ByHeader], [ByBearer], [ByRemoteAddr], [First] of several, or a function
	// that reads what authentication has stored in the context.
	Entity KeyFunc
	// Resource returns what the request is for: [ByPattern], [Fixed], or a function.
	Resource KeyFunc
	// Tokens returns what the request needs, before it is handled: [Each], or a function that estimates, perhaps
	// from [PeekBody]. A name that no limit has, or a negative amount, is answered with 500. Errors are treated as
	// those of a [KeyFunc].
	Tokens func(*http.Request) (weir.Tokens, error)

	// After returns the true cost of a request, once it has been handled. For each limit that it names, its amount
	// replaces the one that Tokens returned or that was passed to [SetCost]. Other limits keep theirs, and nil changes
	// nothing. After is not called for requests that are rolled back. Defaults to none.
	After func(*http.Request, *Result) weir.Tokens
	// RollbackOn reports whether the request costs nothing, so that all its tokens are given back. Defaults to requests
	// whose handler panicked before it answered. The panic continues, whatever RollbackOn returns.
	RollbackOn func(*http.Request, *Result) bool

	// Skip reports which requests are handled without calling the limiter, such as health checks. Defaults to none.
	Skip func(*http.Request) bool
	// AdmitUnlimited handles requests to which no limits apply. Without it, they are answered with 500, so that a
	// mistyped resource does not lift its limits. To limit everything else, set limits of the system (weir system set).
	AdmitUnlimited bool
	// OnUnavailable is how to decide when the store does not answer, if that is stricter than the limiter's setting,
	// like [weir.Request.OnUnavailable]: [weir.OnUnavailableDeny] answers with 503. [weir.OnUnavailableAllow], with
	// which requests are handled, and answered with a Weir-Degraded field, has to be the limiter's own setting.
	// Defaults to that.
	OnUnavailable weir.OnUnavailable

	// Tell reports which limits are shown to clients, in fields and bodies. Clients see the ids of entities and
	// resources, including those of parents; if these are confidential, leave such limits out. Defaults to all limits.
	Tell func(*weir.LimitStatus) bool
	// LegacyHeaders adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	LegacyHeaders bool
	// Errors is the format of answers to requests that are not handled: [ProblemJSON], or [OpenAI] for clients of a
	// language model's API. Defaults to ProblemJSON.
	Errors Errors
	// OnRefused writes the answer to a request that is not handled. All fields except Content-Type are already set. If
	// it writes nothing, the default answer is written, in the format of Errors.
	OnRefused func(http.ResponseWriter, *http.Request, *Refusal)
	// Log receives problems that the client did not cause, at most one a second: a store that does not answer, a
	// function that failed, limits that are missing. Defaults to slog.Default().
	Log *slog.Logger
}

// Errors is a format of answers to requests that are not handled.
type Errors = answer.Format

// The formats of answers to requests that are not handled.
const (
	// ProblemJSON is application/problem+json, with the status of each limit.
	ProblemJSON = answer.ProblemJSON
	// OpenAI is {"error":{"message":…,"type":…,"param":null,"code":"rate_limit_exceeded"}}, as from the API of OpenAI,
	// whose clients then wait and retry. Refusals have the fields retry-after-ms and, for the most binding limit that
	// counts requests (named rps, rpm, rph, rpd or requests) and the one that counts tokens (tps, tpm, tph, tpd or
	// tokens), x-ratelimit-limit-, -remaining- and -reset-requests or -tokens. The type of a refusal is requests or
	// tokens, or rate_limit_exceeded if the limit has another name. If a balance refused, which must be topped up, type
	// and code are insufficient_quota, and x-should-retry is false.
	OpenAI = answer.OpenAI
)

// Result describes how a request was handled.
type Result struct {
	// Status is the status of the answer: 200 if the handler returned without setting one, 101 if it took over the
	// connection, 0 if it panicked before it answered.
	Status int
	// Bytes is the size of the answer's body, before any compression in front of the handler, and without bytes sent
	// after the connection was taken over.
	Bytes int64
	// Duration is how long the handler took.
	Duration time.Duration
	// Panicked is set if the handler panicked instead of returning.
	Panicked bool
}

// Refusal describes why a request is not handled.
type Refusal struct {
	// Status is the status to answer with: 429 if a limit refused, 422 if the request can never pass, 403 if the entity
	// is unknown, 503 if the store does not answer, 500 for configuration mistakes, or that of a [StatusError].
	Status int
	// RetryAfter is the answer's Retry-After before it is rounded up, including jitter; 0 if it has none.
	RetryAfter time.Duration
	// Err is the cause: a [*weir.ExceededError], a [*weir.BurstError], [weir.ErrUnavailable], [weir.ErrUnknownEntity],
	// [weir.ErrBucketQuota], or what a function of the configuration returned. Its text may contain details that
	// clients should not see.
	Err error
	// Detail is a sentence for the client about the cause.
	Detail string
}

// StatusError is an error from a [KeyFunc] or [Config].Tokens that sets the status of the answer. Any other error is
// answered with 500 and logged.
type StatusError struct {
	Status int    // 400 to 599
	Detail string // for the client
}

// Error returns the detail.
func (e *StatusError) Error() string { return e.Detail }

// ErrNoKey reports a request that does not identify its sender. It is answered with 400; [First] tries its next
// function.
var ErrNoKey error = &StatusError{http.StatusBadRequest, "the request does not identify its sender"}

func (c *Config) validate() error {
	var errs []error
	need := func(field string, has bool, hint string) {
		if !has {
			errs = append(errs, &weir.ConfigError{Field: "httplimit: Config." + field, Reason: "is required" + hint})
		}
	}
	need("Limiter", c.Limiter != nil, "")
	need("Entity", c.Entity != nil, `, such as ByHeader("X-Api-Key")`)
	need("Resource", c.Resource != nil, ", such as ByPattern")
	need("Tokens", c.Tokens != nil, `, such as Each("rpm")`)
	if c.Errors != ProblemJSON && c.Errors != OpenAI {
		errs = append(errs, &weir.ConfigError{
			Field: "httplimit: Config.Errors", Reason: "must be ProblemJSON or OpenAI",
		})
	}
	switch c.OnUnavailable {
	case weir.OnUnavailableDefault, weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableLocal:
	default:
		errs = append(errs, &weir.ConfigError{
			Field: "httplimit: Config.OnUnavailable", Reason: "must be deny, allow or local",
		})
	}
	return errors.Join(errs...)
}
