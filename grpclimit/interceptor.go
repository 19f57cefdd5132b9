package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

// Interceptor limits calls. It is safe for concurrent use, by any number of servers.
type Interceptor struct {
	cfg Config
	log answer.Log
}

// New returns an interceptor. It does not call the limiter yet.
//
// Errors: a [*weir.ConfigError] for each field of cfg that is missing or invalid, joined.
func New(cfg Config) (*Interceptor, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.RollbackOn == nil {
		cfg.RollbackOn = func(_ context.Context, _ *Call, res *Result) bool { return res.Panicked && res.Sent == 0 }
	}
	if cfg.Skip == nil {
		cfg.Skip = SkipInfrastructure
	}
	i := &Interceptor{cfg: cfg}
	if i.log.Logger = cfg.Log; i.log.Logger == nil {
		i.log.Logger = slog.Default()
	}
	return i, nil
}

// UnaryServerInterceptor returns an interceptor that limits unary calls.
func (i *Interceptor) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		call := &Call{Method: info.FullMethod, Request: req}
		if i.cfg.Skip(ctx, call) {
			return handler(ctx, req)
		}
		x, err := i.begin(ctx, call, unaryMetadata{ctx})
		if err != nil {
			return nil, err
		}
		defer func() { i.end(ctx, x) }() // also if the handler panics; the panic continues
		x.result.Response, x.result.Err = handler(x.with(ctx), req)
		x.result.Panicked = false
		return x.result.Response, x.result.Err
	}
}

// StreamServerInterceptor returns an interceptor that limits streams: each stream when it begins, and each message that
// it receives if [Config].MessageTokens is set.
func (i *Interceptor) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, call := ss.Context(), &Call{Method: info.FullMethod}
		if i.cfg.Skip(ctx, call) {
			return handler(srv, ss)
		}
		x, err := i.begin(ctx, call, ss)
		if err != nil {
			return err
		}
		limited := &stream{ServerStream: ss, i: i, x: x, ctx: x.with(ctx)}
		defer func() { // also if the handler panics; the panic continues
			x.result.Received, x.result.Sent = int(limited.received.Load()), int(limited.sent.Load())
			i.end(ctx, x)
		}()
		x.result.Err = handler(srv, limited)
		x.result.Panicked = false
		return x.result.Err
	}
}

// exchange holds the state of a call that is handled.
type exchange struct {
	call   *Call
	req    weir.Request
	charge *answer.Charge // nil if no limits apply
	began  time.Time
	result Result
}

// with returns the context of the handler.
func (x *exchange) with(ctx context.Context) context.Context {
	if x.charge == nil {
		return ctx
	}
	return answer.WithCharge(x.charge.Lease().Context(), x.charge)
}

// sender sends the metadata of an answer.
type sender interface {
	SetHeader(metadata.MD) error
	SetTrailer(metadata.MD)
}

// unaryMetadata sends the metadata of a unary call.
type unaryMetadata struct{ ctx context.Context } //nolint:containedctx // where the call is found

// SetHeader implements sender.
func (u unaryMetadata) SetHeader(md metadata.MD) error { return grpc.SetHeader(u.ctx, md) }

// SetTrailer implements sender.
func (u unaryMetadata) SetTrailer(md metadata.MD) { _ = grpc.SetTrailer(u.ctx, md) }

// begin charges a call, or returns the error that ends it.
func (i *Interceptor) begin(ctx context.Context, call *Call, to sender) (*exchange, error) {
	x := &exchange{call: call, result: Result{Panicked: true}} // until the handler returns
	req := &x.req
	req.OnUnavailable = i.cfg.OnUnavailable
	var err error
	if req.Entity, err = i.cfg.Entity(ctx, call); err != nil {
		return nil, i.refuse(ctx, x, to, err)
	}
	if req.Resource, err = i.cfg.Resource(ctx, call); err != nil {
		return nil, i.refuse(ctx, x, to, err)
	}
	if req.Tokens, err = i.cfg.Tokens(ctx, call); err != nil {
		return nil, i.refuse(ctx, x, to, err)
	}
	lease, err := i.cfg.Limiter.Acquire(ctx, *req)
	switch {
	case err == nil:
		x.charge = new(answer.Charge)
		x.charge.Hold(lease, req.Tokens)
		i.setMetadata(ctx, x, to, lease.Decision())
	case !i.cfg.AdmitUnlimited || !errors.Is(err, weir.ErrNoLimits):
		return nil, i.refuse(ctx, x, to, err)
	}
	x.began = time.Now()
	return x, nil
}

// setMetadata sets the metadata of a call that passed.
func (i *Interceptor) setMetadata(ctx context.Context, x *exchange, to sender, d weir.Decision) {
	md := make(metadata.MD, 3)
	i.setFields(md, x.req.Entity, answer.Tell(i.cfg.Tell).Of(d.Statuses))
	if d.Degraded {
		md.Set("weir-degraded", "store-unavailable")
		i.trouble(ctx, x.call, "admitted without the store", errors.New(d.Reason))
	}
	if len(md) > 0 {
		_ = to.SetHeader(md) // an error means that the call has ended
	}
}

func (i *Interceptor) setFields(md metadata.MD, entity string, statuses []weir.LimitStatus) {
	if policy, limit := answer.Fields(entity, statuses); policy != "" {
		md.Set("ratelimit-policy", policy)
		md.Set("ratelimit", limit)
	}
}

// end settles the cost of a call.
func (i *Interceptor) end(ctx context.Context, x *exchange) {
	if x.charge == nil {
		return
	}
	x.result.Duration = time.Since(x.began)
	rollback := i.cfg.RollbackOn(ctx, x.call, &x.result)
	var cost weir.Tokens
	if i.cfg.After != nil && !rollback {
		cost = i.cfg.After(ctx, x.call, &x.result)
	}
	if err := x.charge.End(ctx, rollback, cost); err != nil {
		i.trouble(ctx, x.call, "a call's cost was not settled", err)
	}
}

func (i *Interceptor) trouble(ctx context.Context, call *Call, what string, err error) {
	i.log.Trouble(ctx, "grpclimit: "+what, err, slog.String("method", call.Method))
}

// Lease returns the lease of the call that the handler's context belongs to; nil if the call was not limited. The
// interceptor ends the lease when the handler returns, so do not use it in goroutines that outlive the handler. If you
// adjust the lease, do not also call [SetCost].
func Lease(ctx context.Context) *weir.Lease { return answer.ChargeFrom(ctx).Lease() }

// SetCost sets the true cost, without messages, of the call that the handler's context belongs to: for each named limit
// the total amount, which replaces the requested amount and that of earlier calls. It may be called again as the cost
// grows. A cost above the requested amount is never refused, but may put a limit into debt, which holds later calls
// back. If the call was not limited, SetCost does nothing.
//
// Errors are those of [weir.Lease.Adjust]. A handler may ignore them: at worst the estimate stands.
func SetCost(ctx context.Context, cost weir.Tokens) error {
	return answer.ChargeFrom(ctx).SetCost(ctx, cost)
}
