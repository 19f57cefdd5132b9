package sizes

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Item returns the size of an item in bytes, as DynamoDB counts it for capacity and limits.
func Item(it map[string]types.AttributeValue) int {
	size := 0
	for name, v := range it {
		size += len(name) + Value(v)
	}
	return size
}

// Value returns the size of a value in bytes.
func Value(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberN:
		return numberSize(v.Value)
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberSS:
		return len(strings.Join(v.Value, ""))
	case *types.AttributeValueMemberNS:
		size := 0
		for _, n := range v.Value {
			size += numberSize(n)
		}
		return size
	case *types.AttributeValueMemberL:
		size := 3
		for _, e := range v.Value {
			size += 1 + Value(e)
		}
		return size
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + Item(v.Value)
	default:
		return 1
	}
}

func numberSize(s string) int {
	n, err := ParseNumber(s)
	if err != nil {
		return len(s)
	}
	return n.size()
}
