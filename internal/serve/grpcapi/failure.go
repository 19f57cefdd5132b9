package grpcapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// failure is an error as sent to the client. limiter.proto documents what clients may branch on.
type failure struct {
	code           codes.Code
	reason         string // for FAILED_PRECONDITION
	message, field string
	retryAfter     time.Duration
}

var errInternal = &failure{code: codes.Internal, message: "the error was logged"}

// failures are the failures of the errors that occur on every protocol, without their texts.
var failures = map[decide.Code]failure{
	decide.Unauthenticated: {code: codes.Unauthenticated},
	decide.Forbidden:       {code: codes.PermissionDenied},
	decide.Overloaded:      {code: codes.Unavailable, retryAfter: time.Second},
	decide.ShuttingDown:    {code: codes.Unavailable, retryAfter: time.Second},
	decide.NoLease:         {code: codes.NotFound},
	decide.LeaseExpired:    {code: codes.FailedPrecondition, reason: "EXPIRED"},
}

func badField(field, format string, args ...any) error {
	return &weir.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Error returns the message.
func (f *failure) Error() string { return f.message }

// domain is the domain of weir's error reasons.
const domain = "weir"

// GRPCStatus returns the status with its details.
func (f *failure) GRPCStatus() *status.Status {
	st := status.New(f.code, f.message)
	var details []protoadapt.MessageV1
	if f.reason != "" {
		details = append(details, &errdetails.ErrorInfo{Reason: f.reason, Domain: domain})
	}
	if f.field != "" {
		details = append(details,
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{
				Field:       f.field,
				Description: f.message,
			}}})
	}
	if f.retryAfter > 0 {
		details = append(details,
			&errdetails.RetryInfo{RetryDelay: durationpb.New(answer.Jittered(f.retryAfter))})
	}
	if len(details) == 0 {
		return st
	}
	if with, err := st.WithDetails(details...); err == nil { // fails only for text that is not UTF-8
		return with
	}
	return st
}

// proto returns the failure as the error of one request in a batch.
func (f *failure) proto() *weirv1.Error {
	e := &weirv1.Error{Code: int32(f.code), Message: f.message, Reason: f.reason, Field: f.field}
	if f.retryAfter > 0 {
		e.RetryAfter = durationpb.New(answer.Jittered(f.retryAfter))
	}
	return e
}

// failuresOf has the failure for each code of the limiter. Without a message, the error's own is sent.
var failuresOf = [weir.Codes]failure{
	weir.CodeOK:           {code: codes.Internal, message: internal}, // never: it is no error
	weir.CodeInternal:     {code: codes.Internal, message: internal},
	weir.CodeInvalid:      {code: codes.InvalidArgument},
	weir.CodeExceeded:     {code: codes.Internal, message: internal}, // is in the answer
	weir.CodeExceedsBurst: {code: codes.FailedPrecondition, reason: "EXCEEDS_BURST"},
	weir.CodeNoLimits:     {code: codes.FailedPrecondition, reason: "NO_LIMITS"},
	weir.CodeNotFound:     {code: codes.NotFound},
	weir.CodeNoUsage:      {code: codes.NotFound},
	weir.CodeExists:       {code: codes.AlreadyExists},
	weir.CodeConflict:     {code: codes.Aborted},
	weir.CodeSettled: {
		code: codes.FailedPrecondition, reason: "SETTLED",
		message: "the lease was adjusted or rolled back under this id before; nothing was changed now",
	},
	weir.CodeExpired:     {code: codes.FailedPrecondition, reason: "EXPIRED", message: decide.ErrExpired.Detail},
	weir.CodeUnavailable: {code: codes.Unavailable, message: noAnswer, retryAfter: time.Second},
	weir.CodeCanceled:    {code: codes.Unavailable, message: noAnswer, retryAfter: time.Second},
}

const (
	internal = "the error was logged"
	noAnswer = "the store does not answer, or not in time"
)

// failureOf returns what a client may know about an error. known is false for an unexpected error.
func failureOf(err error) (f *failure, known bool) {
	var (
		common *decide.Error
		config *weir.ConfigError
	)
	switch {
	case errors.As(err, &common):
		f := failures[common.Code]
		f.message = common.Detail
		return &f, true
	case errors.Is(err, watch.ErrTooMany):
		return &failure{code: codes.ResourceExhausted, message: err.Error()}, true
	}
	code := weir.CodeOf(err)
	if errors.Is(err, watch.ErrClosed) {
		code = weir.CodeUnavailable
	}
	out := failuresOf[code]
	out.message = cmp.Or(out.message, err.Error())
	if code == weir.CodeInvalid && errors.As(err, &config) {
		// Both may hold a name from the request, which generated code does not check.
		out.message = strings.ToValidUTF8(config.Error(), "\uFFFD")
		out.field = strings.ToValidUTF8(config.Field, "\uFFFD")
	}
	return &out, out.code != codes.Internal
}

// fail returns the failure to send for an error. Details that the client must not see go only to the log.
func (s *Server) fail(ctx context.Context, err error) *failure {
	f, known := failureOf(err)
	switch {
	case !known:
		s.trouble(ctx, "a request failed", err)
	case errors.Is(err, decide.ErrOverloaded):
		method, _ := grpc.Method(ctx)
		s.decide.Overload(ctx, slog.String("method", method))
	case f.code == codes.Unavailable && !errors.Is(err, decide.ErrDraining) && ctx.Err() == nil:
		s.trouble(ctx, "the store does not answer", err)
	}
	return f
}
