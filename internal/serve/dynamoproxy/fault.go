package dynamoproxy

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/weirlimits/weir/governor"
)

// fault is an error in the form of DynamoDB's. SDKs retry throttling and status 500 and above, and nothing else.
type fault struct {
	status  int
	code    string
	message string
}

// Error returns the message.
func (f *fault) Error() string { return f.message }

func unknownOperation() error {
	return &fault{
		http.StatusBadRequest, "UnknownOperationException",
		"not a request of DynamoDB's API: streams and other services are not behind this endpoint",
	}
}

func malformed(err error) error {
	return &fault{http.StatusBadRequest, "SerializationException", fmt.Sprintf("read the request: %v", err)}
}

// unread returns the fault of a request that could not be received.
func unread(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &fault{
			http.StatusRequestEntityTooLarge, "ValidationException",
			fmt.Sprintf("the request has more than %d MiB", large.Limit>>20),
		}
	}
	return &fault{http.StatusRequestTimeout, "RequestTimeout", fmt.Sprintf("receive the request: %v", err)}
}

// faultOf returns the answer to a request that DynamoDB did not answer.
func faultOf(err error) *fault {
	var f *fault
	var wait *governor.WaitError
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, governor.ErrClosed):
		return &fault{http.StatusServiceUnavailable, "ServiceUnavailable", "the proxy is shutting down"}
	case errors.As(err, &wait) && wait.Never:
		return &fault{http.StatusBadRequest, "ValidationException", fmt.Sprintf("the request never fits: %v", err)}
	case errors.As(err, &wait):
		return &fault{http.StatusBadRequest, "ProvisionedThroughputExceededException", err.Error()}
	}
	// Whether DynamoDB carried it out is unknown. The log has the reason.
	return &fault{http.StatusInternalServerError, "InternalServerError", "DynamoDB did not answer the proxy"}
}

// namespace is what DynamoDB puts before the names of its errors.
const namespace = "com.amazonaws.dynamodb.v20120810#"

func (f *fault) write(w http.ResponseWriter) {
	body, _ := json.Marshal(struct { // strings only: it cannot fail
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{namespace + f.code, "weir: " + f.message})
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set(checksum, strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10))
	w.WriteHeader(f.status)
	_, _ = w.Write(body)
}
