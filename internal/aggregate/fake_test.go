package aggregate_test

import (
	"context"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/dynamotest"
)

// admin is the fake with what it takes to make a table.
type admin struct{ *dynamotest.Fake }

// Scan finds nothing in a table that was just made.
func (admin) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return &sdk.ScanOutput{}, nil
}
