package httplimit

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
)

// Config configures a [Middleware]. Limiter, Entity, Resource and Tokens are required.
type Config struct {
	// Limiter decides; for another namespace, one that [weir.Limiter.In] returned. The middleware does not close it.
	Limiter *weir.Limiter
	// Entity says who sends a request: [ByHeader], [ByBearer], [ByRemoteAddr], [First] of several, or a function that
	// reads what authentication has left in the context.
	Entity KeyFunc
	// Resource says what the request is for: [ByPattern], [Fixed], or a function.
	Resource KeyFunc
	// Tokens says what the request asks for, before it is handled: [Each], or a function that estimates, perhaps from
	// [PeekBody]. A name that no limit has, or a negative amount, is answered with 500. An error as of a KeyFunc.
	Tokens func(*http.Request) (weir.Tokens, error)

	// After says what the request truly cost, once it was handled. What it names takes the place of what Tokens
	// returned, or [SetCost] said, for that limit; other limits keep theirs, and nil changes nothing. It is not called
	// for requests that are rolled back. Defaults to nobody.
	After func(*http.Request, *Result) weir.Tokens
	// RollbackOn says whether the request is to cost nothing: all is given back. Defaults to those whose handler
	// panicked before it answered. A panic goes on, whatever it returns.
	RollbackOn func(*http.Request, *Result) bool

	// Skip says which requests are handled without asking the limiter: health checks, say. Defaults to none.
	Skip func(*http.Request) bool
	// AdmitUnlimited handles requests to which no limits apply. Without it they are answered with 500, since a
	// mistyped resource is not to open what was limited; limits of the system (weir system set) apply to all others.
	AdmitUnlimited bool
	// OnUnavailable says what to do when the store does not answer: [weir.Deny] answers with 503, [weir.Allow] handles
	// the request, with a Weir-Degraded field in the answer. Defaults to what the limiter does.
	OnUnavailable weir.Unavailable

	// Tell says which limits clients are told of, in fields and bodies. Clients see the ids of entities and resources, also
	// those of parents: where these are nobody's business, leave out what is. Defaults to all limits.
	Tell func(*weir.LimitStatus) bool
	// LegacyHeaders adds X-RateLimit-Limit, -Remaining and -Reset.
	LegacyHeaders bool
	// OnRefused writes the answer to a request that is not handled. Fields, other than Content-Type, are set already. If it
	// writes nothing, the default is written: a problem+json body.
	OnRefused func(http.ResponseWriter, *http.Request, *Refusal)
	// Log is told of what is not the client's doing, at most once a second: a store that does not answer, a function
	// that failed, limits that are missing. Defaults to slog.Default().
	Log *slog.Logger
}

// Result is what became of a request.
type Result struct {
	// Status of the answer; 200 if the handler returned without one, 101 if it took the connection over, 0 if it
	// panicked before it answered.
	Status int
	// Bytes of the answer's body, before compression by who stands in front; not those after the connection was
	// taken over.
	Bytes int64
	// Duration that the handler took.
	Duration time.Duration
	// Panicked says that the handler did not return: it panicked.
	Panicked bool
}

// Refusal is why a request is not handled.
type Refusal struct {
	// Status to answer with: 429 when a limit refused, 422 when the request can never pass, 503 when the store does not
	// answer, 500 for mistakes of the configuration, or that of a [StatusError].
	Status int
	// RetryAfter is how long the client is told to wait, with a jitter; 0 if not to come back.
	RetryAfter time.Duration
	// Err is why: a [*weir.ExceededError], a [*weir.BurstError], [weir.ErrUnavailable], what a function of the
	// configuration returned. Its text may hold what is not the client's business.
	Err error
	// Detail is what the client may know of it, a sentence.
	Detail string
}

// StatusError is an error of a [KeyFunc], or of [Config].Tokens, that chooses the answer. Any other error is answered with
// 500, and logged.
type StatusError struct {
	Status int    // 400 to 599
	Detail string // for the client
}

// Error returns the detail.
func (e *StatusError) Error() string { return e.Detail }

// ErrNoKey says that a request does not say who sends it. It is answered with 400; [First] goes on to the next.
var ErrNoKey error = &StatusError{http.StatusBadRequest, "the request does not say who sends it"}

func (c *Config) validate() error {
	var errs []error
	need := func(field string, has bool, hint string) {
		if !has {
			errs = append(errs, &weir.ConfigError{Field: "httplimit: Config." + field, Reason: "is required" + hint})
		}
	}
	need("Limiter", c.Limiter != nil, "")
	need("Entity", c.Entity != nil, `: ByHeader("X-Api-Key"), say`)
	need("Resource", c.Resource != nil, ": ByPattern, say")
	need("Tokens", c.Tokens != nil, `: Each("rpm"), say`)
	switch c.OnUnavailable {
	case weir.UnavailableDefault, weir.Deny, weir.Allow, weir.Local:
	default:
		errs = append(errs, &weir.ConfigError{Field: "httplimit: Config.OnUnavailable", Reason: "must be deny, allow or local"})
	}
	return errors.Join(errs...)
}
