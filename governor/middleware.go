package governor

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/smithy-go/middleware"
)

// Middleware returns the option that puts a client under the governor. Append it to the APIOptions of an aws.Config,
// from which you may create any number of clients, or to those of a single client. It does not affect clients of other
// services.
func (g *Governor) Middleware() func(*middleware.Stack) error {
	return func(s *middleware.Stack) error {
		id := fmt.Sprintf("CapacityGovernor%p", g)
		if _, ok := s.Initialize.Get(id); ok {
			return nil // appended twice
		}
		if err := s.Initialize.Add(operationStep{g, id}, middleware.Before); err != nil {
			return err
		}
		if err := s.Deserialize.Add(sendStep{g, id}, middleware.Before); err != nil {
			return err
		}
		if _, ok := s.Finalize.Get(retryID); !ok {
			return s.Finalize.Add(attemptStep{g, id}, middleware.Before)
		}
		return s.Finalize.Insert(attemptStep{g, id}, retryID, middleware.After)
	}
}

const retryID = "Retry" // the SDK's step: what comes after it runs once per attempt

// callKey carries a call to its attempts. It has the size of a pointer, so it needs no allocation.
type callKey struct{ g *Governor }

// operationStep runs once for each operation, regardless of the SDK's retries.
type operationStep struct {
	g  *Governor
	id string
}

// ID implements middleware.InitializeMiddleware.
func (o operationStep) ID() string { return o.id }

// HandleInitialize implements middleware.InitializeMiddleware.
func (o operationStep) HandleInitialize(
	ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
) (
	middleware.InitializeOutput, middleware.Metadata, error,
) {
	c, input := classify(o.g, in.Parameters)
	if c == nil {
		return next.HandleInitialize(ctx, in)
	}
	in.Parameters = input
	c.claim()
	if err := o.g.reserve(ctx, c.claims); err != nil {
		return middleware.InitializeOutput{}, middleware.Metadata{}, err
	}
	settled := false
	defer func() {
		if !settled { // a panic in an inner step
			c.unknown = max(c.unknown, 1)
			c.settle(nil, errPanic)
		}
	}()
	out, md, err := next.HandleInitialize(context.WithValue(ctx, callKey{o.g}, c), in)
	settled = true
	c.settle(out.Result, err)
	return out, md, err
}

var errPanic = errors.New("panic")

// attemptStep runs for each attempt.
type attemptStep struct {
	g  *Governor
	id string
}

// ID implements middleware.FinalizeMiddleware.
func (a attemptStep) ID() string { return a.id }

// HandleFinalize implements middleware.FinalizeMiddleware.
func (a attemptStep) HandleFinalize(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
	middleware.FinalizeOutput, middleware.Metadata, error,
) {
	c, governed := ctx.Value(callKey{a.g}).(*call)
	if governed {
		c.sent = false
	}
	out, md, err := next.HandleFinalize(ctx, in)
	if governed && err != nil {
		c.attempted(err)
	}
	return out, md, err
}

// sendStep runs for each attempt that is about to be sent, after it was signed.
type sendStep struct {
	g  *Governor
	id string
}

// ID implements middleware.DeserializeMiddleware.
func (s sendStep) ID() string { return s.id }

// HandleDeserialize implements middleware.DeserializeMiddleware.
func (s sendStep) HandleDeserialize(
	ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
) (
	middleware.DeserializeOutput, middleware.Metadata, error,
) {
	if c, ok := ctx.Value(callKey{s.g}).(*call); ok {
		c.sent = true
	}
	return next.HandleDeserialize(ctx, in)
}
