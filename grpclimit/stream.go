package grpclimit

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// stream counts messages, and charges those that it receives.
type stream struct {
	grpc.ServerStream
	i   *Interceptor
	x   *exchange
	ctx context.Context //nolint:containedctx // that of the stream

	received, sent atomic.Int64
	degraded       atomic.Bool // the trailer reports a message that was admitted without the store
}

// Context returns a context that carries the lease.
func (s *stream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *stream) SendMsg(msg any) error {
	s.sent.Add(1)
	return s.ServerStream.SendMsg(msg)
}

// RecvMsg implements grpc.ServerStream. The handler does not get a message that is refused.
func (s *stream) RecvMsg(msg any) error {
	if err := s.ServerStream.RecvMsg(msg); err != nil {
		return err
	}
	if s.i.cfg.MessageTokens != nil {
		if err := s.i.charge(s, msg); err != nil {
			return err
		}
	}
	s.received.Add(1)
	return nil
}

// charge spends the tokens of one message.
func (i *Interceptor) charge(s *stream, msg any) error {
	tokens, err := i.cfg.MessageTokens(s.ctx, s.x.call, msg)
	if err != nil {
		return i.refuse(s.ctx, s.x, s.ServerStream, err)
	}
	if tokens == nil || s.x.charge == nil {
		return nil
	}
	req := s.x.req
	req.Tokens = tokens
	if slots := s.x.charge.Lease().Slots(); slots != nil { // the call holds them
		for name := range slots {
			slots[name] = 0
		}
		maps.Copy(slots, tokens)
		req.Tokens = slots
	}
	lease, err := i.cfg.Limiter.Acquire(s.ctx, req)
	if err != nil {
		return i.refuse(s.ctx, s.x, s.ServerStream, err)
	}
	if d := lease.Decision(); d.Degraded {
		if !s.degraded.Swap(true) {
			s.SetTrailer(metadata.Pairs("weir-degraded", "store-unavailable")) // the header may have been sent
		}
		i.trouble(s.ctx, s.x.call, "admitted a message without the store", errors.New(d.Reason))
	}
	return lease.Commit(s.ctx)
}
