package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
)

// Config configures an [Interceptor]. Limiter, Entity, Resource and Tokens are required.
type Config struct {
	// Limiter decides; for another namespace, one that [weir.Limiter.In] returned. The interceptor does not close it.
	Limiter *weir.Limiter
	// Entity says who makes a call: [ByMetadata], [ByBearer], [ByPeer], [First] of several, or a function that reads what
	// authentication has left in the context.
	Entity KeyFunc
	// Resource says what the call is for: [ByMethod], [Fixed], or a function.
	Resource KeyFunc
	// Tokens says what the call asks for, before it is handled: [Each], or a function that estimates from the request. A
	// name that no limit has, or a negative amount, ends the call with INTERNAL. An error as of a KeyFunc.
	Tokens func(context.Context, *Call) (weir.Tokens, error)

	// MessageTokens says what each message that a stream receives asks for, beside what the call did; nil asks for
	// nothing. A message that a limit refuses is not seen by the handler, whose RecvMsg returns the refusal: the call
	// ends with it unless the handler does otherwise. What a message spent is not given back. Defaults to nothing.
	MessageTokens func(ctx context.Context, call *Call, msg any) (weir.Tokens, error)
	// After says what the call truly cost, once it was handled, without its messages. What it names takes the place of
	// what Tokens returned, or [SetCost] said, for that limit; other limits keep theirs, and nil changes nothing. It is
	// not called for calls that are rolled back. Defaults to nobody.
	After func(context.Context, *Call, *Result) weir.Tokens
	// RollbackOn says whether the call is to cost nothing: all but what its messages spent is given back. Defaults to
	// those whose handler panicked before it sent a message. A panic goes on, whatever it returns.
	RollbackOn func(context.Context, *Call, *Result) bool

	// Skip says which calls are handled without asking the limiter. Defaults to those of the services
	// grpc.health.v1.Health and grpc.reflection: see [SkipInfrastructure].
	Skip func(context.Context, *Call) bool
	// AdmitUnlimited handles calls to which no limits apply. Without it they end with INTERNAL, since a mistyped
	// resource is not to open what was limited; limits of the system (weir system set) apply to all others.
	AdmitUnlimited bool
	// OnUnavailable says what to do when the store does not answer: [weir.Deny] ends the call with UNAVAILABLE,
	// [weir.Allow] handles it, with weir-degraded in its header, for a message in its trailer. Defaults to what the limiter
	// does.
	OnUnavailable weir.Unavailable

	// Tell says which limits clients are told of, in metadata and details. Clients see the ids of entities and resources,
	// also those of parents: where these are nobody's business, leave out what is. Defaults to all limits.
	Tell func(*weir.LimitStatus) bool
	// OnRefused returns the error that a call that is not handled ends with. If it returns nil, the default is it:
	// Refusal.Status.
	OnRefused func(context.Context, *Call, *Refusal) error
	// Log is told of what is not the client's doing, at most once a second: a store that does not answer, a function
	// that failed, limits that are missing. Defaults to slog.Default().
	Log *slog.Logger
}

// Call is a call that the server is to handle.
type Call struct {
	Method  string // "/package.Service/Method"
	Request any    // of a unary call; nil of a stream
}

// Result is what became of a call.
type Result struct {
	Response any   // of a unary call; nil of a stream
	Err      error // that the handler returned
	Received int   // messages of a stream that the handler was given
	Sent     int   // messages of a stream
	Duration time.Duration
	Panicked bool // the handler did not return
}

// Refusal is why a call is not handled.
type Refusal struct {
	// Status is RESOURCE_EXHAUSTED when a limit refused, FAILED_PRECONDITION when the call can never pass, UNAVAILABLE
	// when the store does not answer, INTERNAL for mistakes of the configuration, or what a function of it returned.
	Status *status.Status
	// RetryAfter is how long the client is told to wait, with a jitter; 0 if not to come back.
	RetryAfter time.Duration
	// Err is why: a [*weir.ExceededError], a [*weir.BurstError], [weir.ErrUnavailable], what a function of the
	// configuration returned. Its text may hold what is not the client's business.
	Err error
}

// ErrNoKey says that a call does not say who makes it. It is UNAUTHENTICATED; [First] goes on to the next.
var ErrNoKey = status.Error(codes.Unauthenticated, "the call does not say who makes it")

func (c *Config) validate() error {
	var errs []error
	need := func(field string, has bool, hint string) {
		if !has {
			errs = append(errs, &weir.ConfigError{Field: "grpclimit: Config." + field, Reason: "is required" + hint})
		}
	}
	need("Limiter", c.Limiter != nil, "")
	need("Entity", c.Entity != nil, `: ByMetadata("x-api-key"), say`)
	need("Resource", c.Resource != nil, ": ByMethod, say")
	need("Tokens", c.Tokens != nil, `: Each("rpm"), say`)
	switch c.OnUnavailable {
	case weir.UnavailableDefault, weir.Deny, weir.Allow, weir.Local:
	default:
		errs = append(errs, &weir.ConfigError{Field: "grpclimit: Config.OnUnavailable", Reason: "must be deny, allow or local"})
	}
	return errors.Join(errs...)
}
