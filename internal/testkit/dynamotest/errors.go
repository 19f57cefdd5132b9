package dynamotest

import (
	"fmt"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
)

// invalid returns DynamoDB's error for an invalid request.
func invalid(format string, args ...any) error { return sizes.Invalid(format, args...) }

// unsupported returns the error for a feature of DynamoDB that the fake lacks.
func unsupported(format string, args ...any) error {
	return &smithy.GenericAPIError{
		Code: "NotInTheFake", Message: "dynamotest.Fake does not have " + fmt.Sprintf(format, args...),
	}
}

func noTable(name string) error {
	return &types.ResourceNotFoundException{Message: new("Requested resource not found: Table: " + name + " not found")}
}

// answered wraps an error of the engine as the SDK does.
func answered(op string, err error) error {
	return &smithy.OperationError{ServiceID: "DynamoDB", OperationName: op, Err: &awshttp.ResponseError{
		ResponseError: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{
				Response: &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}},
			},
			Err: err,
		},
		RequestID: "FAKE",
	}}
}
