package grpcapi

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/decide"
)

const (
	// perResult is what is reserved for a result of a batch while it is made, perBrief for one without an id and
	// statuses, and perStatus what a status holds beside its texts, in bytes.
	perResult, perBrief, perStatus = 1 << 10, 1 << 8, 1 << 8
	// maxQueued is how long a batch waits for memory. By then a burst is over.
	maxQueued = 100 * time.Millisecond
)

// AcquireBatch decides several requests.
func (s *limiter) AcquireBatch(
	ctx context.Context, in *weirv1.AcquireBatchRequest,
) (*weirv1.AcquireBatchResponse, error) {
	batch, err := s.batch(ctx, in)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	n, size, c := len(in.GetRequests()), perResult, decide.CallerOf(ctx)
	if in.GetBrief() {
		size = perBrief
	}
	room := func(bytes int, patience time.Duration) bool { return s.decide.Reserve(ctx, c, bytes, patience) }
	if !room(n*size, maxQueued) {
		return nil, s.fail(ctx, decide.ErrOverloaded)
	}
	out := &weirv1.AcquireBatchResponse{Results: make([]*weirv1.AcquireResult, n)}
	results, responses, slots := make([]weirv1.AcquireResult, n), []response(nil), make([]*weir.Lease, n)
	if !in.GetBrief() {
		responses = make([]response, n)
	}
	answer := func(i int, lim *weir.Limiter, lease *weir.Lease, err error) {
		if err == nil && lease.Slots() != nil {
			slots[i] = lease
		}
		out.Results[i] = &results[i]
		var full *response
		if responses != nil {
			full = &responses[i]
		}
		d, f := s.answer(ctx, lim, lease, err, full)
		if !room(d.SizeVT()+perStatus*len(d.GetLimits())-size, 0) {
			d, f = s.answer(ctx, lim, lease, err, nil)
		}
		results[i].Decision = d
		if f != nil {
			results[i].Error = f.proto()
		}
	}
	c.Unsent = func() { decide.TakeBack(ctx, slots...) }
	if !in.GetAtomic() {
		batch.Each(ctx, method(ctx), answer)
		return out, nil
	}
	lim, leases, err := batch.All(ctx, in.GetBrief())
	var over *weir.ExceededError
	switch {
	case errors.As(err, &over):
		c.Err = over
		return &weirv1.AcquireBatchResponse{Refused: refusal(over, in.GetBrief())}, nil
	case err != nil:
		return nil, s.fail(ctx, err)
	}
	for i, lease := range leases {
		if answer(i, lim, lease, nil); results[i].GetError() != nil { // there is no room for a lease that holds slots
			decide.TakeBack(ctx, leases...)
			return nil, s.fail(ctx, decide.ErrOverloaded)
		}
	}
	return out, nil
}

// batch returns the requests of a batch. If it returns an error, nothing has been spent.
func (s *limiter) batch(ctx context.Context, in *weirv1.AcquireBatchRequest) (*decide.Batch, error) {
	if err := understood(in); err != nil {
		return nil, err
	}
	batch, err := decide.NewBatch(s.decide, decide.CallerOf(ctx), len(in.GetRequests()), in.GetAtomic())
	if err != nil {
		return nil, err
	}
	for i, r := range in.GetRequests() {
		req, err := requestOf(r)
		if err == nil && r.GetWait() != nil {
			err = badField("wait", "is not for batches")
		}
		if err != nil {
			return nil, decide.OfRequest(i, err)
		}
		if err := batch.Add(r.GetNamespace(), &req); err != nil {
			return nil, err
		}
	}
	return batch, nil
}
