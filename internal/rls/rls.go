// Package rls answers Envoy's rate limit service, envoy.service.ratelimit.v3, with a limiter. docs/guide/envoy.md is its
// manual.
//
// All descriptors of a request are decided together: if one is over its limit, nothing is debited of any. Trouble of the
// store is never a gRPC error while Envoy waits: on_unavailable decides, and the answer says so in its metadata. The
// errors that there are say that the request is none, or that whoever asks may not.
package rls

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

	"github.com/weirlimits/weir"
)

// Config configures a [Service]. Only Limiter is required.
type Config struct {
	// Limiter decides. The service does not close it.
	Limiter *weir.Limiter
	// Mapping says what domains and descriptors stand for; it is asked for each request. Defaults to the built-in one.
	Mapping func() *Mapping
	// Within is after how long, from when the request came, an answer waits no more for tokens to be given back, or to be
	// counted after the fact, which go on without it. How long a decision takes is up to the limiter. Defaults to 12 ms.
	Within time.Duration
	// May says whether whoever asks may acquire in a namespace. Defaults to everybody everywhere.
	May func(ctx context.Context, namespace string) bool
	// Body is the body of the answer that a client gets that is refused. Defaults to none: Envoy's own.
	Body []byte
	// Log is told about trouble, at most once a second. Defaults to nobody.
	Log *slog.Logger
}

// Service implements Envoy's RateLimitService. See [New].
type Service struct {
	rlsv3.UnsafeRateLimitServiceServer // all methods are here, or it does not compile

	cfg    Config
	views  sync.Map // of namespaces: string to *weir.Limiter
	limits cache[limitKey, *rlsv3.RateLimitResponse_RateLimit]
	facts  facts
	logged atomic.Int64 // when trouble was last logged

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
		cfg.May = func(context.Context, string) bool { return true }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{cfg: cfg}, nil
}

// Register registers the service with a gRPC server. A nil service does nothing.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	if s != nil {
		rlsv3.RegisterRateLimitServiceServer(r, s)
	}
}

// Close waits for what is given back and counted after the fact. No request may come any more. A nil service does
// nothing.
func (s *Service) Close() {
	if s != nil {
		s.settles.Wait()
	}
}

// maxDescriptors bounds how many descriptors a request has.
const maxDescriptors = 100

// ShouldRateLimit implements Envoy's RateLimitServiceServer.
func (s *Service) ShouldRateLimit(ctx context.Context, req *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	domain, descriptors := req.GetDomain(), req.GetDescriptors()
	switch {
	case domain == "":
		return nil, status.Error(codes.InvalidArgument, "domain: must not be empty")
	case len(descriptors) == 0:
		return nil, status.Error(codes.InvalidArgument, "descriptors: there must be at least one")
	case len(descriptors) > maxDescriptors:
		return nil, status.Errorf(codes.InvalidArgument, "descriptors: there are %d, at most %d are allowed", len(descriptors), maxDescriptors)
	}
	mapping := s.cfg.Mapping()
	namespace, known := mapping.Namespace(domain)
	lim := s.in(namespace)
	if !s.cfg.May(ctx, lim.Namespace()) {
		err := status.Errorf(codes.PermissionDenied, "domain %q: its namespace %q is not one in which this token may acquire", domain, lim.Namespace())
		s.trouble(ctx, "a token is not for what it asks", err)
		return nil, err
	}
	c := newCall(s, lim, len(descriptors))
	if !known {
		c.reason = reasonDomain
		return c.answer(), nil
	}
	for i, d := range descriptors {
		c.add(i, mapping, domain, d, req.GetHitsAddend())
	}
	if err := c.decide(ctx); err != nil {
		return nil, err
	}
	return c.answer(), nil
}

// in returns the view of a namespace; "" is the limiter's own.
func (s *Service) in(namespace string) *weir.Limiter {
	if namespace == "" || namespace == s.cfg.Limiter.Namespace() {
		return s.cfg.Limiter
	}
	if v, ok := s.views.Load(namespace); ok {
		return v.(*weir.Limiter)
	}
	v, _ := s.views.LoadOrStore(namespace, s.cfg.Limiter.In(namespace)) // as many as the mapping names
	return v.(*weir.Limiter)
}

// settle has tokens given back or counted after the fact, all at once, and reports whether that was done in time, by what
// is left of it. It goes on if not.
func (s *Service) settle(ctx context.Context, began time.Time, all []func(context.Context) error) (inTime bool) {
	ctx = context.WithoutCancel(ctx)
	done := make(chan error, len(all))
	for _, f := range all {
		s.settles.Go(func() {
			err := survive(ctx, f)
			if err != nil {
				s.trouble(ctx, "tokens were not given back, or not counted", err)
			}
			done <- err
		})
	}
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

// survive makes a panic an error: there is nobody but the process to catch it.
func survive(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f(ctx)
}

// trouble logs an error, but not more than one a second: when the store is away, every request has one.
func (s *Service) trouble(ctx context.Context, what string, err error) {
	now := time.Now().UnixNano()
	last := s.logged.Load()
	if now-last < int64(time.Second) || !s.logged.CompareAndSwap(last, now) {
		return
	}
	s.cfg.Log.LogAttrs(ctx, slog.LevelError, "trouble with a request of Envoy", slog.String("what", what), slog.Any("error", err))
}
