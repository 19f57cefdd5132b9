package table

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/broken"
)

// Trouble turns an error of DynamoDB into a [store.Error] with a hint about what to do.
func (t *Table) Trouble(op, key string, err error) error { return Trouble(op, t.cfg.Table, key, err) }

// Trouble turns an error of DynamoDB into a [store.Error] with a hint about what to do.
func Trouble(op, table, key string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*store.Error](err); ok {
		return err
	}
	return &store.Error{
		Op: op, Key: strings.TrimSpace(table + " " + key), Err: brief(err), Hint: Hint(err), Extent: extent(err),
	}
}

// extent returns how much of the store an error concerns. What DynamoDB refuses for a key, or for the load on it, it
// has answered.
func extent(err error) store.Extent {
	var api smithy.APIError
	switch {
	case errors.Is(err, errUnprocessed):
		return store.ExtentKey
	case errors.As(err, &api):
		code := api.ErrorCode()
		if slices.Contains(throttles, code) || slices.Contains(conflicts, code) || code == CodeValidation ||
			code == "ItemCollectionSizeLimitExceededException" || len(Canceled(err)) > 0 {
			return store.ExtentKey
		}
	case broken.Connection(err):
		return store.ExtentStore
	}
	return store.ExtentUnknown
}

// brief removes from an error's text what the SDK wraps around it: the service, the operation's name, the status. All
// of it can still be unwrapped.
func brief(err error) error {
	var (
		api  smithy.APIError
		call *net.OpError
		op   *smithy.OperationError
	)
	switch {
	case !errors.As(err, &op):
		return err
	case errors.As(err, &api):
		return &briefError{strings.TrimSuffix(api.ErrorCode()+": "+api.ErrorMessage(), ": "), err}
	case errors.As(err, &call):
		return &briefError{call.Error(), err}
	}
	return err
}

type briefError struct {
	text string
	err  error
}

func (e *briefError) Error() string { return e.text }

func (e *briefError) Unwrap() error { return e.err }

// Damaged is the error for an item that is not in weir's format.
func (t *Table) Damaged(key Key, err error) error { return Damaged(t.cfg.Table, key, err) }

// Damaged is the error for an item that is not in weir's format.
func Damaged(table string, key Key, err error) error {
	return &store.Error{
		Op: "read", Key: table + " " + key.String(), Err: err,
		Hint: "the item was not written by weir: correct or delete it", Extent: store.ExtentKey,
	}
}

// Codes of errors without a type in the SDK, and of the reasons for which a transaction is cancelled.
const (
	codeThrottled   = "ThrottlingException"
	codeThroughput  = "ProvisionedThroughputExceededException"
	codeTooMany     = "RequestLimitExceeded"
	codeDenied      = "AccessDeniedException"
	CodeValidation  = "ValidationException"
	codeNoTable     = "ResourceNotFoundException"
	codeUnavailable = "ServiceUnavailable"

	ReasonCondition  = "ConditionalCheckFailed"
	ReasonValidation = "ValidationError"
)

var (
	throttles = []string{codeThrottled, codeThroughput, codeTooMany}
	// conflicts and troubles are the other errors after which the same call may succeed a little later.
	conflicts = []string{
		"TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException",
	}
	troubles = []string{"InternalServerError", "InternalFailure", codeUnavailable, "ServiceUnavailableException"}
	// retriedReasons are the cancellation reasons after which the same transaction may succeed a little later.
	retriedReasons = []string{"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
)

// Ambiguous reports whether a write that failed with err may have been applied after all, because no response arrived
// or the server was in trouble. Any other error without a code counts as Ambiguous unless it is known that the request
// was not sent.
func Ambiguous(err error) bool {
	if err == nil {
		return false
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return !unsent(err)
	}
	return failed(err) || api.ErrorFault() == smithy.FaultServer || slices.Contains(troubles, api.ErrorCode())
}

// forbidden reports whether the caller's policies do not allow a call.
func forbidden(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == codeDenied
}

// failed reports whether the server, or a proxy in front of it, responded with a server error.
func failed(err error) bool {
	var resp *awshttp.ResponseError
	return errors.As(err, &resp) && resp.HTTPStatusCode() >= http.StatusInternalServerError
}

// unsent reports whether a call failed before its request was written.
func unsent(err error) bool {
	var (
		op     *net.OpError
		dns    *net.DNSError
		cert   *tls.CertificateVerificationError
		params *smithy.InvalidParamsError
		serial *smithy.SerializationError
	)
	switch {
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dns), errors.As(err, &cert),
		errors.As(err, &params), errors.As(err, &serial):
		return true
	}
	return noIdentity(err) || noEndpoint(err)
}

// noIdentity reports whether there were no credentials to sign a request with. The SDK has no error type for this.
func noIdentity(err error) bool {
	return says(err, "get identity: ") || says(err, "sign request: ")
}

// noEndpoint reports whether no endpoint was found to send a request to. The SDK has no error type for this either.
func noEndpoint(err error) bool {
	return errors.As(err, new(*aws.EndpointNotFoundError)) || says(err, "resolve service endpoint") ||
		says(err, "failed to parse endpoint URL")
}

func says(err error, words string) bool { return strings.Contains(err.Error(), words) }

// Transient reports whether the same call may succeed a little later.
func Transient(err error) bool {
	var (
		api  smithy.APIError
		cert *tls.CertificateVerificationError
		dns  *net.DNSError
		op   *net.OpError
	)
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &api):
		reasons := Canceled(err)
		if len(reasons) > 0 {
			return retry(reasons)
		}
		return slices.Contains(throttles, api.ErrorCode()) || slices.Contains(conflicts, api.ErrorCode()) ||
			Ambiguous(err)
	case errors.As(err, &cert):
		return false
	case errors.As(err, &dns):
		return !dns.IsNotFound
	case errors.As(err, &op):
		return true
	}
	return Ambiguous(err)
}

// retry reports whether a transaction was cancelled only for temporary reasons.
func retry(reasons []types.CancellationReason) bool {
	passing := false
	for _, r := range reasons {
		switch code := aws.ToString(r.Code); {
		case slices.Contains(retriedReasons, code):
			passing = true
		case code != "" && code != "None":
			return false
		}
	}
	return passing
}

// Canceled returns the reasons for which a transaction was cancelled.
func Canceled(err error) []types.CancellationReason {
	if c, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		return c.CancellationReasons
	}
	return nil
}

// InvalidWrite reports whether DynamoDB called a write invalid.
func InvalidWrite(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == CodeValidation
}

// ForKey reports whether a call was throttled because of its key, not of the table.
func ForKey(err error) bool {
	var reasons []types.ThrottlingReason
	var provisioned *types.ProvisionedThroughputExceededException
	var throttling *types.ThrottlingException
	switch {
	case errors.As(err, &provisioned):
		reasons = provisioned.ThrottlingReasons
	case errors.As(err, &throttling):
		reasons = throttling.ThrottlingReasons
	}
	return slices.ContainsFunc(reasons, func(r types.ThrottlingReason) bool {
		return strings.Contains(aws.ToString(r.Reason), "KeyRange")
	})
}
