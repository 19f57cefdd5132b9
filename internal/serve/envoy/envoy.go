// Package envoy implements Envoy's rate limit service, envoy.service.ratelimit.v3, with a limiter. See
// docs/integrate/envoy.md for the manual.
//
// All descriptors of a request are decided together: if one is over its limit, nothing is debited for any of them. A
// store problem is never a gRPC error for Envoy: on_unavailable decides, and the metadata of the answer shows it. The
// only errors are for invalid requests and for callers without permission.
package envoy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/growing"
	"github.com/weirlimits/weir/internal/serve/ratelog"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Service]. Only Limiter is required.
type Config struct {
	// Limiter makes the decisions. The service does not close it.
	Limiter *weir.Limiter
	// Mapping returns the mapping of domains and descriptors. It is called for each request. Defaults to the built-in
	// rule.
	Mapping func() *Mapping
	// Within is how long after the arrival of a request its answer may wait for returns and forced debits. After that,
	// they continue in the background. It does not bound the decision itself; the limiter does. Defaults to 12 ms.
	Within time.Duration
	// DenyUnknown refuses requests with a descriptor that has no entity, or for which no limits exist. By default they
	// are admitted, with the code UNKNOWN.
	DenyUnknown bool
	// May reports whether the caller has an access. By default every caller has every one.
	May func(context.Context, auth.Access) bool
	// Refused is called with the access for which a request is refused. By default nothing is called.
	Refused func(context.Context, auth.Access)
	// Body is the response body for refused clients. By default Envoy sends its own, or that of Errors.
	Body []byte
	// Errors is the format of refusals. By default, they have no body.
	Errors answer.Format
	// Log receives problems, at most one per second. Defaults to none.
	Log *slog.Logger
}

// Service implements Envoy's RateLimitService. See [New].
type Service struct {
	rlsv3.UnsafeRateLimitServiceServer // makes a missing method a compile error

	cfg      Config
	views    sync.Map // by namespace: string to *view
	limits   cache[limitKey, *rlsv3.RateLimitResponse_RateLimit]
	messages cache[metadata, *structpb.Struct]
	log      *slog.Logger // of problems, at most one per second

	unknown growing.Map[unknown, *atomic.Uint64]

	settles sync.WaitGroup
}

// New returns a service.
func New(cfg Config) (*Service, error) {
	if cfg.Limiter == nil {
		return nil, &weir.ConfigError{Field: "Config.Limiter", Reason: "is required"}
	}
	if cfg.Within < 0 {
		return nil, &weir.ConfigError{Field: "Config.Within", Reason: "must not be negative"}
	}
	cfg.Within = cmp.Or(cfg.Within, 12*time.Millisecond)
	if cfg.Mapping == nil {
		cfg.Mapping = func() *Mapping { return nil }
	}
	if cfg.May == nil {
		cfg.May = func(context.Context, auth.Access) bool { return true }
	}
	if cfg.Refused == nil {
		cfg.Refused = func(context.Context, auth.Access) {}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Service{cfg: cfg, log: ratelog.New(cfg.Log)}, nil
}

// Register registers the service with a gRPC server. A nil service does nothing.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	if s != nil {
		rlsv3.RegisterRateLimitServiceServer(r, s)
	}
}

// Close waits for pending returns and forced debits. No requests may arrive after Close is called. A nil service does
// nothing.
func (s *Service) Close() {
	if s != nil {
		s.settles.Wait()
	}
}

// maxDescriptors is the maximum number of descriptors in a request.
const maxDescriptors = 100

// ShouldRateLimit implements Envoy's RateLimitServiceServer.
func (s *Service) ShouldRateLimit(ctx context.Context, req *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	domain, descriptors := req.GetDomain(), req.GetDescriptors()
	switch {
	case domain == "":
		return nil, status.Error(codes.InvalidArgument, "domain: must not be empty")
	case len(domain) > store.MaxID:
		return nil, status.Errorf(codes.InvalidArgument, "domain: must have at most %d bytes", store.MaxID)
	case len(descriptors) == 0:
		return nil, status.Error(codes.InvalidArgument, "descriptors: there must be at least one")
	case len(descriptors) > maxDescriptors:
		return nil, status.Errorf(codes.InvalidArgument, "descriptors: there are %d, at most %d are allowed",
			len(descriptors), maxDescriptors)
	}
	mapping := s.cfg.Mapping()
	namespace, known := mapping.Namespace(domain)
	c := newCall(s, s.in(namespace), len(descriptors))
	c.domain = domain
	if !known {
		if err := s.require(ctx, c.access()); err != nil {
			return nil, err
		}
		for i := range descriptors {
			c.unknown(ctx, i, reasonDomain)
		}
		return c.answer(), nil
	}
	for i, d := range descriptors {
		access, ok := c.add(i, mapping, d, req.GetHitsAddend())
		if err := s.require(ctx, access); err != nil {
			return nil, err
		}
		if !ok {
			c.unknown(ctx, i, reasonDescriptor)
		}
	}
	if err := c.decide(ctx); err != nil {
		return nil, err
	}
	resp := c.answer()
	if c.over {
		decide.CallerOf(ctx).RefusedBy = c.refusedBy()
	}
	return resp, nil
}

// require refuses a request whose caller lacks an access.
func (s *Service) require(ctx context.Context, a auth.Access) error {
	if s.cfg.May(ctx, a) {
		return nil
	}
	s.cfg.Refused(ctx, a)
	return errForbidden
}

// errForbidden does not name the namespace of the domain, so that it does not reveal it.
var errForbidden = status.Error(codes.PermissionDenied, decide.ErrForbidden.Detail)

// view is a namespace.
type view struct {
	*weir.Limiter
	recentDebits recentDebits
}

// in returns the view of a namespace; "" means the limiter's own.
func (s *Service) in(namespace string) *view {
	if v, ok := s.views.Load(namespace); ok {
		return v.(*view)
	}
	lim := s.cfg.Limiter.In(cmp.Or(namespace, s.cfg.Limiter.Namespace()))
	v, _ := s.views.LoadOrStore(lim.Namespace(), &view{Limiter: lim}) // bounded by the namespaces in the mapping
	s.views.Store(namespace, v)
	return v.(*view)
}

// settle runs returns and forced debits concurrently and reports whether all finished within the remaining time. If
// not, they continue in the background. It then calls leave.
func (s *Service) settle(
	ctx context.Context, began time.Time, all []func(context.Context) error, leave func(),
) (inTime bool) {
	ctx = context.WithoutCancel(ctx)
	done := make(chan error, len(all))
	s.settles.Go(func() {
		defer leave()
		var wg sync.WaitGroup
		for _, f := range all {
			wg.Go(func() {
				err := survive(ctx, f)
				if err != nil {
					s.trouble(ctx, "tokens were not given back, or not counted", err)
				}
				done <- err
			})
		}
		wg.Wait()
	})
	late := time.NewTimer(s.cfg.Within - time.Since(began))
	defer late.Stop()
	inTime = true
	for range all {
		select {
		case err := <-done:
			inTime = inTime && err == nil
		case <-late.C:
			return false
		}
	}
	return inTime
}

// survive turns a panic into an error, because nothing else would recover it and the process would crash.
func survive(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f(ctx)
}

// trouble logs an error, at most one per second: when the store is down, every request has one.
func (s *Service) trouble(ctx context.Context, what string, err error) {
	s.log.LogAttrs(ctx, slog.LevelError, "trouble with a request of Envoy", slog.String("what", what),
		slog.Any("error", err))
}
