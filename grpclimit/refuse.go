package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/store"
)

// refuse returns the error that ends a call, and sets its trailer.
func (i *Interceptor) refuse(ctx context.Context, x *exchange, to sender, err error) error {
	o := answer.OutcomeOf(err, i.cfg.Tell)
	md := make(metadata.MD, 4)
	var code codes.Code
	var details []protoadapt.MessageV1
	if o.RetryAfter > 0 {
		md.Set("retry-after", answer.RetryAfter(o.RetryAfter))
		md.Set("grpc-retry-pushback-ms", strconv.FormatInt(milliseconds(o.RetryAfter), 10))
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(o.RetryAfter)})
	}
	switch o.Code {
	case weir.CodeExceeded:
		code = codes.ResourceExhausted
		i.setFields(md, x.req.Entity, o.Statuses)
		if q := quotaFailure(o.Statuses); len(q.GetViolations()) > 0 {
			details = append(details, q)
		}
	case weir.CodeExceedsBurst:
		code = codes.FailedPrecondition
		details = append(details, &errdetails.ErrorInfo{Reason: "EXCEEDS_BURST", Domain: "weir"})
	case weir.CodeUnknownEntity:
		code = codes.PermissionDenied
	case weir.CodeBucketQuota:
		code = codes.ResourceExhausted
	case weir.CodeUnavailable:
		code = codes.Unavailable
		if ctx.Err() == nil {
			i.trouble(ctx, x.call, "the store did not answer a request in time", err)
		}
	default:
		code = codes.Internal
	}
	st := status.New(code, o.Detail)
	if with, err := st.WithDetails(details...); err == nil { // never fails: the details are text and numbers
		st = with
	}
	if o.Code == weir.CodeInternal {
		if chosen, ok := chosenStatus(err); ok {
			st = chosen
		} else {
			i.trouble(ctx, x.call, "a call could not be limited", err)
		}
	}
	if len(md) > 0 {
		to.SetTrailer(md) // gRPC clients do not retry a call that has header metadata
	}
	if i.cfg.OnRefused != nil {
		if err := i.cfg.OnRefused(ctx, x.call, &Refusal{Status: st, RetryAfter: o.RetryAfter, Err: err}); err != nil {
			return err
		}
	}
	return st.Err()
}

// chosenStatus returns the status that a function of the configuration chose.
func chosenStatus(err error) (*status.Status, bool) {
	var chosen interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &chosen) {
		return nil, false
	}
	st := chosen.GRPCStatus()
	return st, st.Code() != codes.OK // OK would end the call successfully
}

// quotaFailure describes the limits that refused.
func quotaFailure(statuses []weir.LimitStatus) *errdetails.QuotaFailure {
	q := new(errdetails.QuotaFailure)
	for k := range statuses {
		st := &statuses[k]
		if !st.Refused {
			continue
		}
		q.Violations = append(q.Violations, &errdetails.QuotaFailure_Violation{
			Subject: "entity:" + st.Entity,
			Description: fmt.Sprintf(
				"%s on %s has %d of %d available, %d requested", st.Limit, store.ResourceText(st.Resource),
				st.Available, st.Burst, st.Requested,
			),
			QuotaMetric:     st.Limit,
			QuotaDimensions: map[string]string{"entity": st.Entity, "resource": st.Resource},
			QuotaValue:      st.Amount,
		})
	}
	return q
}

// milliseconds returns d in milliseconds, rounded up.
func milliseconds(d time.Duration) int64 { return int64((d-1)/time.Millisecond) + 1 }
