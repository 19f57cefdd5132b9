package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// limiter is the service weir.v1.Limiter.
type limiter struct {
	*Server
	weirv1.UnsafeLimiterServer // makes a missing method a compile error
}

// Acquire decides one request.
func (s *limiter) Acquire(ctx context.Context, in *weirv1.AcquireRequest) (*weirv1.AcquireResponse, error) {
	req, err := requestOf(in)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	wait, err := patienceOf(in)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	lim, err := s.in(ctx, decide.AccessOf(in.GetNamespace(), &req))
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	c := decide.CallerOf(ctx)
	lease, err := s.decide.Acquire(ctx, c, lim, req, wait)
	c.Err = err
	out, f := s.answer(ctx, lim, lease, err, &response{})
	if f != nil {
		return nil, f
	}
	if err == nil && lease.Slots() != nil {
		c.Unsent = func() { decide.TakeBack(ctx, lease) }
	}
	return out, nil
}

// answer returns the response to a decision, or the reason why there is none. The response to an admitted request is in
// full; if that is nil, it is brief.
func (s *limiter) answer(
	ctx context.Context, lim *weir.Limiter, lease *weir.Lease, err error, full *response,
) (*weirv1.AcquireResponse, *failure) {
	if err == nil && full == nil {
		err = decide.NoSlots(ctx, lease)
	}
	if err == nil {
		return s.admit(ctx, lim, lease, full), nil
	}
	if over, ok := errors.AsType[*weir.ExceededError](err); ok {
		return refusal(over, full == nil), nil
	}
	return nil, s.fail(ctx, err)
}

// admit returns the response to an admitted request, as answer does.
func (s *limiter) admit(
	ctx context.Context, lim *weir.Limiter, lease *weir.Lease, full *response,
) *weirv1.AcquireResponse {
	if full == nil && !lease.Degraded() {
		return admitted
	}
	out := full
	if out == nil {
		out = &response{}
	}
	out.Allowed = true
	d := lease.Decision()
	if d.Degraded {
		// The reason goes to the log, not to the client.
		s.decide.Trouble(ctx, "admitted without the store", errors.New(d.Reason), method(ctx))
		out.Degraded, out.Over, out.Reason = true, d.Over, "the store did not answer"
	}
	if full == nil {
		return &out.AcquireResponse
	}
	held := s.decide.Hold(lim, lease)
	expires := held.Expires()
	out.expires.Seconds, out.expires.Nanos = expires.Unix(), int32(expires.Nanosecond())
	out.Lease, out.Expires, out.HeldFor = idOf(&held), &out.expires, waitOf(held.HeldFor())
	out.Limits = statusesOf(d.Statuses)
	return &out.AcquireResponse
}

func idOf(lease *decide.Lease) string { return string(lease.AppendID(nil)) }

// refusal returns the response to a request that a limit refused.
func refusal(over *weir.ExceededError, brief bool) *weirv1.AcquireResponse {
	out := &weirv1.AcquireResponse{RetryAfter: waitOf(answer.Jittered(over.RetryAfter))}
	if over.Degraded {
		out.Degraded, out.Over, out.Reason = true, over.Over, "the store did not answer"
	}
	if !brief {
		out.Limits = statusesOf(over.Statuses)
	}
	return out
}

// requestOf returns the request for the limiter. It shares the tokens of the message.
func requestOf(in *weirv1.AcquireRequest) (weir.Request, error) {
	req := weir.Request{Entity: in.GetEntity(), Resource: in.GetResource(), Tokens: in.GetTokens()}
	switch in.GetOnUnavailable() {
	case weirv1.OnUnavailable_ON_UNAVAILABLE_UNSPECIFIED:
	case weirv1.OnUnavailable_ON_UNAVAILABLE_DENY:
		req.OnUnavailable = weir.OnUnavailableDeny
	case weirv1.OnUnavailable_ON_UNAVAILABLE_ALLOW:
		req.OnUnavailable = weir.OnUnavailableAllow
	case weirv1.OnUnavailable_ON_UNAVAILABLE_LOCAL:
		req.OnUnavailable = weir.OnUnavailableLocal
	default:
		return req, badField("on_unavailable", "must be deny (1), allow (2) or local (3): %d", in.GetOnUnavailable())
	}
	if len(in.ProtoReflect().GetUnknown()) > 0 {
		return req, badField("request", "has a field that this server does not know")
	}
	for i, l := range in.GetLimits() {
		at := "limits[" + strconv.Itoa(i) + "]"
		if len(l.ProtoReflect().GetUnknown()) > 0 {
			return req, badField(at, "has a field that this server does not know")
		}
		limit := weir.Limit{
			Name: l.GetName(), Amount: l.GetAmount(), Burst: l.GetBurst(),
			MaxDebt: l.GetMaxDebt(), Strict: l.GetStrict(),
		}
		switch {
		case l.GetWindow() != "" && l.GetPeriod() != nil:
			return req, badField(at+".window", "cannot be together with a period")
		case l.GetWindow() != "":
			if err := limit.Window.UnmarshalText([]byte(l.GetWindow())); err != nil {
				return req, badField(at+".window", "%v", err)
			}
		case l.GetPeriod() == nil:
			return req, badField(at+".period", "is missing")
		case l.GetPeriod().CheckValid() != nil:
			return req, badField(at+".period", "is not a duration")
		default:
			limit.Period = l.GetPeriod().AsDuration()
		}
		req.Limits = append(req.Limits, limit)
	}
	return req, nil
}

func badField(field, format string, args ...any) error {
	return &weir.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func patienceOf(in *weirv1.AcquireRequest) (time.Duration, error) {
	if in.GetWait() == nil {
		return 0, nil
	}
	d := in.GetWait().AsDuration()
	if in.GetWait().CheckValid() != nil || d < 0 || d > decide.MaxWait {
		return 0, badField("wait", "must be between 0s and %s", decide.MaxWait)
	}
	return d, nil
}
