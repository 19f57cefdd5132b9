package dynamotest

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
)

type item = map[string]types.AttributeValue

// kind returns DynamoDB's name for a value's type.
func kind(v types.AttributeValue) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", v), "*types.AttributeValueMember")
}

// normal returns a copy of a value with its numbers formatted as DynamoDB does.
func normal(v types.AttributeValue) (types.AttributeValue, error) {
	switch v := v.(type) {
	case *types.AttributeValueMemberN:
		n, err := sizes.ParseNumber(v.Value)
		if err != nil {
			return nil, err
		}
		return &types.AttributeValueMemberN{Value: n.String()}, nil
	case *types.AttributeValueMemberS:
		return &types.AttributeValueMemberS{Value: v.Value}, nil
	case *types.AttributeValueMemberB:
		return &types.AttributeValueMemberB{Value: bytes.Clone(v.Value)}, nil
	case *types.AttributeValueMemberBOOL:
		return &types.AttributeValueMemberBOOL{Value: v.Value}, nil
	case *types.AttributeValueMemberNULL:
		return &types.AttributeValueMemberNULL{Value: v.Value}, nil
	case *types.AttributeValueMemberSS:
		err := set(v.Value)
		return &types.AttributeValueMemberSS{Value: slices.Clone(v.Value)}, err
	case *types.AttributeValueMemberNS:
		numbers := make([]string, 0, len(v.Value))
		for _, s := range v.Value {
			n, err := sizes.ParseNumber(s)
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, n.String())
		}
		return &types.AttributeValueMemberNS{Value: numbers}, set(numbers)
	case *types.AttributeValueMemberL:
		list := make([]types.AttributeValue, 0, len(v.Value))
		for _, e := range v.Value {
			e, err := normal(e)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		return &types.AttributeValueMemberL{Value: list}, nil
	case *types.AttributeValueMemberM:
		m, err := normalItem(v.Value)
		return &types.AttributeValueMemberM{Value: m}, err
	default:
		return nil, unsupported("values of type %s", kind(v))
	}
}

func set(elements []string) error {
	sorted := slices.Sorted(slices.Values(elements))
	if len(sorted) == 0 || len(slices.Compact(sorted)) < len(elements) {
		return invalid("One or more parameter values were invalid: a set must have elements, and none twice")
	}
	return nil
}

func normalItem(it item) (item, error) {
	out := make(item, len(it))
	for name, v := range it {
		v, err := normal(v)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// clone copies a normalized item. Nil stays nil.
func clone(it item) item {
	if it == nil {
		return nil
	}
	out, err := normalItem(it)
	if err != nil {
		panic(err)
	}
	return out
}

// compare orders two numbers, strings or binaries.
func compare(a, b types.AttributeValue) (order int, ok bool) {
	switch a := a.(type) {
	case *types.AttributeValueMemberN:
		if b, ok := b.(*types.AttributeValueMemberN); ok {
			x, errX := sizes.ParseNumber(a.Value)
			y, errY := sizes.ParseNumber(b.Value)
			return x.Cmp(y), errX == nil && errY == nil
		}
	case *types.AttributeValueMemberS:
		if b, ok := b.(*types.AttributeValueMemberS); ok {
			return cmp.Compare(a.Value, b.Value), true
		}
	case *types.AttributeValueMemberB:
		if b, ok := b.(*types.AttributeValueMemberB); ok {
			return bytes.Compare(a.Value, b.Value), true
		}
	}
	return 0, false
}

func equal(a, b types.AttributeValue) bool {
	if kind(a) != kind(b) {
		return false
	}
	switch a := a.(type) {
	case *types.AttributeValueMemberBOOL:
		return a.Value == b.(*types.AttributeValueMemberBOOL).Value
	case *types.AttributeValueMemberNULL:
		return true
	case *types.AttributeValueMemberSS:
		return sameSet(a.Value, b.(*types.AttributeValueMemberSS).Value)
	case *types.AttributeValueMemberNS:
		return sameSet(a.Value, b.(*types.AttributeValueMemberNS).Value)
	case *types.AttributeValueMemberL:
		return slices.EqualFunc(a.Value, b.(*types.AttributeValueMemberL).Value, equal)
	case *types.AttributeValueMemberM:
		return maps.EqualFunc(a.Value, b.(*types.AttributeValueMemberM).Value, equal)
	default:
		order, ok := compare(a, b)
		return ok && order == 0
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// ItemSize returns the size of an item in bytes, as DynamoDB counts it for capacity and limits.
func ItemSize(it map[string]types.AttributeValue) int { return sizes.Item(it) }
