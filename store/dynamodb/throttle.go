package dynamodb

import (
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// forKey reports whether a call was throttled because of its key, not of the table.
func forKey(err error) bool {
	var reasons []types.ThrottlingReason
	var provisioned *types.ProvisionedThroughputExceededException
	var throttling *types.ThrottlingException
	switch {
	case errors.As(err, &provisioned):
		reasons = provisioned.ThrottlingReasons
	case errors.As(err, &throttling):
		reasons = throttling.ThrottlingReasons
	}
	for _, r := range reasons {
		if strings.Contains(aws.ToString(r.Reason), "KeyRange") {
			return true
		}
	}
	return false
}
