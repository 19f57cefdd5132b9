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
	// Limiter makes the decisions; for another namespace, use the result of [weir.Limiter.In]. The interceptor does not
	// close it.
	Limiter *weir.Limiter
	// Entity returns who makes a call: [ByMetadata], [ByBearer], [ByPeer], [First] of several, or a function that reads
	// what authentication has stored in the context.
	Entity KeyFunc
	// Resource returns what the call is for: [ByMethod], [Fixed], or a function.
	Resource KeyFunc
	// Tokens returns what the call needs, before it is handled: [Each], or a function that estimates from the
	// request. A name that no limit has, or a negative amount, ends the call with INTERNAL. Errors are treated as those
	// of a [KeyFunc].
	Tokens func(context.Context, *Call) (weir.Tokens, error)

	// MessageTokens returns what each message received on a stream needs, in addition to what the call itself needs;
	// nil means nothing. The handler does not get a message that a limit refuses: its RecvMsg returns the refusal, and
	// the call ends with it unless the handler decides otherwise. Tokens spent by messages are not given back. Defaults
	// to none.
	MessageTokens func(ctx context.Context, call *Call, msg any) (weir.Tokens, error)
	// After returns the true cost of a call without its messages, once the call has been handled. For each limit that
	// it names, its amount replaces the one that Tokens returned or that was passed to [SetCost]. Other limits keep
	// theirs, and nil changes nothing. After is not called for calls that are rolled back. Defaults to none.
	After func(context.Context, *Call, *Result) weir.Tokens
	// RollbackOn reports whether the call costs nothing, so that all tokens except those of its messages are given
	// back. Defaults to calls whose handler panicked before it sent a message. The panic continues, whatever RollbackOn
	// returns.
	RollbackOn func(context.Context, *Call, *Result) bool

	// Skip reports which calls are handled without calling the limiter. Defaults to those of the services
	// grpc.health.v1.Health and grpc.reflection: see [SkipInfrastructure].
	Skip func(context.Context, *Call) bool
	// AdmitUnlimited handles calls to which no limits apply. Without it, they end with INTERNAL, so that a mistyped
	// resource does not lift its limits. To limit everything else, set limits of the system (weir system set).
	AdmitUnlimited bool
	// OnUnavailable is how to decide when the store does not answer, if that is stricter than the limiter's setting,
	// like [weir.Request.OnUnavailable]: [weir.OnUnavailableDeny] ends the call with UNAVAILABLE.
	// [weir.OnUnavailableAllow], with which calls are handled, with weir-degraded in the header, or in the trailer if
	// it concerns a message, has to be the limiter's own setting. Defaults to that.
	OnUnavailable weir.OnUnavailable

	// Tell reports which limits are shown to clients, in metadata and details. Clients see the ids of entities and
	// resources, including those of parents; if these are confidential, leave such limits out. Defaults to all limits.
	Tell func(*weir.LimitStatus) bool
	// OnRefused returns the error that ends a call that is not handled. If it returns nil, the call ends with the
	// default, Refusal.Status.
	OnRefused func(context.Context, *Call, *Refusal) error
	// Log receives problems that the client did not cause, at most one a second: a store that does not answer, a
	// function that failed, limits that are missing. Defaults to slog.Default().
	Log *slog.Logger
}

// Call is a call to be handled by the server.
type Call struct {
	Method  string // "/package.Service/Method"
	Request any    // of a unary call; nil for a stream
}

// Result describes how a call was handled.
type Result struct {
	Response any   // of a unary call; nil for a stream
	Err      error // returned by the handler
	Received int   // messages of a stream that the handler received
	Sent     int   // messages of a stream that the handler sent
	Duration time.Duration
	Panicked bool // the handler panicked instead of returning
}

// Refusal describes why a call is not handled.
type Refusal struct {
	// Status is RESOURCE_EXHAUSTED if a limit refused, FAILED_PRECONDITION if the call can never pass,
	// PERMISSION_DENIED if the entity is unknown, UNAVAILABLE if the store does not answer, INTERNAL for configuration
	// mistakes, or what a function of the configuration returned.
	Status *status.Status
	// RetryAfter is the delay in the RetryInfo of the status, including jitter; 0 if it has none.
	RetryAfter time.Duration
	// Err is the cause: a [*weir.ExceededError], a [*weir.BurstError], [weir.ErrUnavailable], [weir.ErrUnknownEntity],
	// [weir.ErrBucketQuota], or what a function of the configuration returned. Its text may contain details that
	// clients should not see.
	Err error
}

// ErrNoKey reports a call that does not identify its caller. It is UNAUTHENTICATED; [First] tries its next function.
var ErrNoKey = status.Error(codes.Unauthenticated, "the call does not identify its caller")

func (c *Config) validate() error {
	var errs []error
	need := func(field string, has bool, hint string) {
		if !has {
			errs = append(errs, &weir.ConfigError{Field: "grpclimit: Config." + field, Reason: "is required" + hint})
		}
	}
	need("Limiter", c.Limiter != nil, "")
	need("Entity", c.Entity != nil, `, such as ByMetadata("x-api-key")`)
	need("Resource", c.Resource != nil, ", such as ByMethod")
	need("Tokens", c.Tokens != nil, `, such as Each("rpm")`)
	switch c.OnUnavailable {
	case weir.OnUnavailableDefault, weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableLocal:
	default:
		errs = append(errs, &weir.ConfigError{
			Field: "grpclimit: Config.OnUnavailable", Reason: "must be deny, allow or local",
		})
	}
	return errors.Join(errs...)
}
