package aggregate

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

// streamed is [concerns] for the types of the streams client.
func streamed(keys map[string]streamtypes.AttributeValue) bool {
	sk, ok := keys["SK"].(*streamtypes.AttributeValueMemberS)
	return ok && (sk.Value == "#STATE" || sk.Value == "#COUNTS")
}

// image is [attributes] for the types of the streams client.
func image(in map[string]streamtypes.AttributeValue) map[string]types.AttributeValue {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]types.AttributeValue, len(in))
	for name, v := range in {
		switch v := v.(type) {
		case *streamtypes.AttributeValueMemberS:
			out[name] = &types.AttributeValueMemberS{Value: v.Value}
		case *streamtypes.AttributeValueMemberN:
			out[name] = &types.AttributeValueMemberN{Value: v.Value}
		case *streamtypes.AttributeValueMemberB:
			out[name] = &types.AttributeValueMemberB{Value: v.Value}
		default:
			out[name] = &types.AttributeValueMemberNULL{Value: true}
		}
	}
	return out
}
