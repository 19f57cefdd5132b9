package table

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

const (
	// HintCreate is for a table that does not exist.
	HintCreate  = "weir doctor --create-table creates it; or check its name, the region and the endpoint"
	hintTrouble = "DynamoDB is in trouble: retry, and check the service's status"
)

// Hint returns what to do about an error of DynamoDB or of the way to it, or "".
func Hint(err error) string {
	var (
		api  smithy.APIError
		cert *tls.CertificateVerificationError
		dns  *net.DNSError
	)
	switch {
	case errors.As(err, &api):
		return apiHint(err, api)
	case failed(err):
		return hintTrouble
	case errors.Is(err, errUnprocessed):
		return throttleHint(nil)
	case noIdentity(err):
		return "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or give the " +
			"machine a role"
	case noEndpoint(err):
		return "set the region, as AWS_REGION or region= of the store's URL"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at the endpoint: check its address and port"
	case errors.As(err, &dns):
		return "the endpoint's name was not found: check the region, the endpoint and DNS"
	case errors.As(err, &cert):
		return "the endpoint's certificate is not trusted: check its address, and the machine's certificates and clock"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time: check the endpoint and the network"
	}
	return ""
}

func apiHint(err error, api smithy.APIError) string {
	code, message := api.ErrorCode(), api.ErrorMessage()
	switch {
	case slices.Contains(throttles, code):
		return throttleHint(throttlingReasons(err))
	case code == codeNoTable:
		return HintCreate
	case code == codeDenied:
		return deniedHint(message)
	case code == CodeValidation && strings.Contains(message, "does not match the schema"),
		code == CodeValidation && strings.Contains(message, "does not have the specified index"):
		return "the table does not have weir's keys or indexes: see weir doctor"
	case code == "InvalidSignatureException" &&
		(strings.Contains(message, "expired") || strings.Contains(message, "not yet current")):
		return "set the machine's clock"
	}
	switch code {
	case "UnrecognizedClientException", "InvalidSignatureException", "InvalidClientTokenId",
		"IncompleteSignatureException",
		"MissingAuthenticationTokenException", "MissingAuthenticationToken":
		return "the credentials are not valid: check them, and that they are of this region's account"
	case "ExpiredTokenException", "ExpiredToken":
		return "the credentials have expired: renew them"
	case "TransactionCanceledException":
		return canceledHint(Canceled(err))
	case "TransactionConflictException", "TransactionInProgressException":
		return "others are writing the same items: retry"
	}
	if Ambiguous(err) {
		return hintTrouble
	}
	return ""
}

func canceledHint(reasons []types.CancellationReason) string {
	for _, r := range reasons {
		switch aws.ToString(r.Code) {
		case "ThrottlingError", "ProvisionedThroughputExceeded":
			return throttleHint(nil)
		case "TransactionConflict":
			return "others are writing the same items: retry"
		}
	}
	return ""
}

var denied = regexp.MustCompile(`not authorized to perform: (dynamodb:\w+)(?: on resource: (\S+))?`)

// deniedHint names the missing permission.
func deniedHint(message string) string {
	m := denied.FindStringSubmatch(message)
	switch {
	case m == nil:
		return "the credentials lack a permission: see weir's policy"
	case strings.Contains(message, "explicit deny"):
		return "a policy denies " + m[1] + " explicitly: remove that denial"
	case m[2] == "":
		return "grant the credentials " + m[1]
	}
	return "grant the credentials " + m[1] + " on " + m[2]
}

func throttlingReasons(err error) []types.ThrottlingReason {
	var (
		a *types.ThrottlingException
		b *types.ProvisionedThroughputExceededException
		c *types.RequestLimitExceeded
	)
	switch {
	case errors.As(err, &a):
		return a.ThrottlingReasons
	case errors.As(err, &b):
		return b.ThrottlingReasons
	case errors.As(err, &c):
		return c.ThrottlingReasons
	}
	return nil
}

// throttleHint uses the first reason. Its text is one word that names the resource, the operation and the kind of
// limit, for instance TableWriteKeyRangeThroughputExceeded.
func throttleHint(reasons []types.ThrottlingReason) string {
	if len(reasons) == 0 {
		return "the table is throttled: raise its capacity, or use on-demand capacity"
	}
	what := "the table"
	if arn := aws.ToString(reasons[0].Resource); strings.Contains(arn, "/index/") {
		what = "index " + arn[strings.LastIndex(arn, "/")+1:]
	}
	switch reason := aws.ToString(reasons[0].Reason); {
	case strings.Contains(reason, "KeyRange"):
		return "one key range of " + what +
			" gets more load than DynamoDB serves per range: spread the load over more buckets"
	case strings.Contains(reason, "MaxOnDemand"):
		return "raise the maximum on-demand throughput of " + what
	case strings.Contains(reason, "AccountLimit"):
		return "raise the account's quota of DynamoDB throughput"
	}
	return "raise the provisioned capacity of " + what + ", or use on-demand capacity"
}
