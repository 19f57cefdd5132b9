package stream_test

import (
	"context"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// admin is the fake with the methods needed to make a table.
type admin struct{ *dynamotest.Fake }

// Scan finds nothing, as in a new table.
func (admin) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return &sdk.ScanOutput{}, nil
}
