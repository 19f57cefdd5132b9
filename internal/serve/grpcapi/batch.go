package grpcapi

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
)

// maxBatch is the maximum number of requests in a batch.
const maxBatch = 1000

// lateness updates the estimate of whether the store answers from memory. Once the estimate is [late], the requests of
// a batch are decided concurrently; before that, a goroutine would cost more than the decision. One slow decision is
// not enough, because the scheduler also delays a decision now and then.
func lateness(took time.Duration, before int32) int32 {
	switch {
	case took < 100*time.Microsecond:
		return 0
	case took < 5*time.Millisecond:
		return before + 1
	}
	return late
}

const late = 2

// check is one request of a batch.
type check struct {
	lim *weir.Limiter
	req weir.Request
}

// AcquireBatch decides several requests.
func (s *limiter) AcquireBatch(
	ctx context.Context, in *weirv1.AcquireBatchRequest,
) (*weirv1.AcquireBatchResponse, error) {
	checks, err := s.checks(ctx, in)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if in.GetAtomic() {
		return s.acquireAll(ctx, checks, in.GetBrief())
	}
	out := &weirv1.AcquireBatchResponse{Results: make([]*weirv1.AcquireResult, len(checks))}
	results, responses := make([]weirv1.AcquireResult, len(checks)), make([]response, len(checks))
	decide := func(i int) {
		defer func() { // the decisions on the others must still be answered
			if v := recover(); v != nil {
				out.Results[i] = &weirv1.AcquireResult{Error: s.survived(ctx, v).proto()}
			}
		}()
		lease, err := checks[i].lim.Acquire(ctx, checks[i].req)
		var f *failure
		results[i].Decision, f = s.answer(ctx, checks[i].lim, lease, err, in.GetBrief(), &responses[i])
		if f != nil {
			results[i].Error = f.proto()
		}
		out.Results[i] = &results[i]
	}
	n, lately, began := 0, s.lately.Load(), time.Now()
	for ; n < len(checks) && lately < late; n++ {
		decide(n)
		now := time.Now()
		lately, began = lateness(now.Sub(began), lately), now
	}
	s.lately.Store(lately)
	var wg sync.WaitGroup
	for i := n; i < len(checks); i++ {
		wg.Go(func() {
			began := time.Now()
			decide(i)
			s.lately.Store(lateness(time.Since(began), late))
		})
	}
	wg.Wait()
	return out, nil
}

// acquireAll decides a batch in one namespace, all or none.
func (s *limiter) acquireAll(ctx context.Context, checks []check, brief bool) (*weirv1.AcquireBatchResponse, error) {
	lim, reqs := checks[0].lim, make([]weir.Request, len(checks))
	for i := range checks {
		reqs[i] = checks[i].req
	}
	leases, err := lim.AcquireAll(ctx, reqs)
	var over *weir.ExceededError
	if errors.As(err, &over) {
		return &weirv1.AcquireBatchResponse{Refused: refusal(over, brief)}, nil
	}
	if err != nil {
		f := s.fail(ctx, err)
		if f.Field != "" {
			f.Detail = err.Error() // names the request
		}
		return nil, f
	}
	out := &weirv1.AcquireBatchResponse{Results: make([]*weirv1.AcquireResult, len(checks))}
	results, responses := make([]weirv1.AcquireResult, len(checks)), make([]response, len(checks))
	for i, lease := range leases {
		results[i].Decision = s.admit(ctx, lim, lease, brief, &responses[i])
		out.Results[i] = &results[i]
	}
	return out, nil
}

// checks returns the requests of a batch. If it returns an error, nothing has been spent.
func (s *limiter) checks(ctx context.Context, in *weirv1.AcquireBatchRequest) ([]check, error) {
	if err := understood(in); err != nil {
		return nil, err
	}
	if n := len(in.GetRequests()); n < 1 || n > maxBatch {
		return nil, badField("requests", "must be 1 to %d, are %d", maxBatch, n)
	}
	checks := make([]check, len(in.GetRequests()))
	for i, r := range in.GetRequests() {
		c := &checks[i]
		var err error
		if c.req, err = requestOf(r); err != nil {
			return nil, ofRequest(i, err)
		}
		if r.GetWait() != nil {
			return nil, ofRequest(i, badField("wait", "is not for batches"))
		}
		same := i > 0 && r.GetNamespace() == in.GetRequests()[0].GetNamespace()
		switch {
		case same:
			c.lim = checks[0].lim
		case i > 0 && in.GetAtomic():
			return nil, ofRequest(i, badField("namespace",
				"must be that of the first: an atomic batch is of one namespace"))
		default:
			if c.lim, err = s.in(ctx, auth.Acquire, r.GetNamespace()); err != nil {
				return nil, err
			}
		}
	}
	return checks, nil
}

// ofRequest adds to a field error the index of the request in the batch.
func ofRequest(i int, err error) error {
	var bad *weir.ConfigError
	if errors.As(err, &bad) {
		return badField("requests["+strconv.Itoa(i)+"]."+bad.Field, "%s", bad.Reason)
	}
	return err
}
