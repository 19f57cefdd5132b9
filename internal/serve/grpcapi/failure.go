package grpcapi

import (
	"context"
	"log/slog"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// statuses has the status for each code. limiter.proto documents what clients may branch on.
var statuses = [decide.Codes]struct {
	code   codes.Code
	reason string // for FAILED_PRECONDITION, and where a code has several reasons
}{
	weir.CodeOK:            {code: codes.Internal}, // never: it is no error
	weir.CodeInternal:      {code: codes.Internal},
	weir.CodeInvalid:       {code: codes.InvalidArgument},
	weir.CodeExceeded:      {code: codes.Internal}, // never: it is in the answer
	weir.CodeExceedsBurst:  {code: codes.FailedPrecondition, reason: "EXCEEDS_BURST"},
	weir.CodeNoLimits:      {code: codes.FailedPrecondition, reason: "NO_LIMITS"},
	weir.CodeNotFound:      {code: codes.NotFound},
	weir.CodeNoUsage:       {code: codes.NotFound},
	weir.CodeExists:        {code: codes.AlreadyExists},
	weir.CodeConflict:      {code: codes.Aborted},
	weir.CodeSettled:       {code: codes.FailedPrecondition, reason: "SETTLED"},
	weir.CodeExpired:       {code: codes.FailedPrecondition, reason: "EXPIRED"},
	weir.CodeUnavailable:   {code: codes.Unavailable},
	weir.CodeCanceled:      {code: codes.Unavailable},
	weir.CodeMaxDebt:       {code: codes.FailedPrecondition, reason: "MAX_DEBT"},
	weir.CodeUnknownEntity: {code: codes.FailedPrecondition, reason: "UNKNOWN_ENTITY"},
	weir.CodeBucketQuota:   {code: codes.ResourceExhausted, reason: "BUCKET_QUOTA"},
	decide.Unauthenticated: {code: codes.Unauthenticated},
	decide.Forbidden:       {code: codes.PermissionDenied},
	decide.Overloaded:      {code: codes.Unavailable},
	decide.ShuttingDown:    {code: codes.Unavailable},
	decide.Watched:         {code: codes.ResourceExhausted},
}

// failure is an error as sent to the client.
type failure struct {
	decide.Fault
	adjusted proto.Message // what an adjustment has done all the same
}

// Error returns the detail.
func (f *failure) Error() string { return f.Detail }

// domain is the domain of weir's error reasons.
const domain = "weir"

// GRPCStatus returns the status with its details.
func (f *failure) GRPCStatus() *status.Status {
	e := f.proto()
	st := status.New(codes.Code(e.GetCode()), e.GetMessage())
	var details []protoadapt.MessageV1
	if e.GetReason() != "" {
		details = append(details, &errdetails.ErrorInfo{Reason: e.GetReason(), Domain: domain})
	}
	if e.GetField() != "" {
		violation := &errdetails.BadRequest_FieldViolation{Field: e.GetField(), Description: e.GetMessage()}
		details = append(details,
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{violation}})
	}
	if e.GetRetryAfter() != nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: e.GetRetryAfter()})
	}
	if f.adjusted != nil {
		details = append(details, protoadapt.MessageV1Of(f.adjusted))
	}
	if len(details) == 0 {
		return st
	}
	if with, err := st.WithDetails(details...); err == nil { // never fails: the texts are UTF-8
		return with
	}
	return st
}

// proto returns the failure as the error of one request in a batch.
func (f *failure) proto() *weirv1.Error {
	st := statuses[f.Code]
	e := &weirv1.Error{
		// The texts may hold a name from the request, which generated code does not check.
		Code: int32(st.code), Message: strings.ToValidUTF8(f.Detail, "\uFFFD"), Reason: st.reason,
		Field: strings.ToValidUTF8(f.Field, "\uFFFD"),
	}
	if f.RetryAfter > 0 {
		e.RetryAfter = waitOf(answer.Jittered(f.RetryAfter))
	}
	return e
}

// fail returns the failure to send for an error. Details that the client must not see go only to the log.
func (s *Server) fail(ctx context.Context, err error) *failure {
	return &failure{Fault: s.decide.Fault(ctx, err, From(ctx), method(ctx))}
}

// method returns the method of a request as a log attribute.
func method(ctx context.Context) slog.Attr {
	name, _ := grpc.Method(ctx)
	return slog.String("method", name)
}
