package table

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/store"
)

var (
	errNotNumber = errors.New("is not a whole number")
	errNotText   = errors.New("is not a string")
	errNotBinary = errors.New("is not binary")
)

// Str returns a text as an attribute.
func Str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// Num returns a number as an attribute.
func Num[N int | int64 | uint64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
}

// Number reads a whole number, saturating.
func Number(v types.AttributeValue) (int64, error) {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0, errNotNumber
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return i, nil // ParseInt saturates
	}
	return 0, errNotNumber
}

// Unsigned reads a whole number that is not negative.
func Unsigned(v types.AttributeValue) (uint64, error) {
	n, err := Number(v)
	if err != nil || n < 0 {
		return 0, errNotNumber
	}
	return uint64(n), nil
}

// Text reads a text.
func Text(v types.AttributeValue) (string, error) {
	s, ok := v.(*types.AttributeValueMemberS)
	if !ok {
		return "", errNotText
	}
	return s.Value, nil
}

// Binary reads bytes.
func Binary(v types.AttributeValue) ([]byte, error) {
	b, ok := v.(*types.AttributeValueMemberB)
	if !ok {
		return nil, errNotBinary
	}
	return b.Value, nil
}

// Field decodes an attribute. Its errors name the attribute.
func Field[T any](
	attrs map[string]types.AttributeValue, name string, decode func(types.AttributeValue) (T, error),
) (T, error) {
	v, err := decode(attrs[name])
	if err != nil {
		return v, fmt.Errorf("attribute %s: %w", name, err)
	}
	return v, nil
}

// Invalid returns an error of the caller's.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrInvalid, fmt.Sprintf(format, args...))
}

// ParseItem decodes a bucket's shard.
func ParseItem(attrs map[string]types.AttributeValue) (*plan.Item, error) {
	if len(attrs) == 0 {
		return plan.Missing, nil
	}
	it := plan.NewItem(len(attrs))
	for name, v := range attrs {
		var value expr.Value
		switch v := v.(type) {
		case *types.AttributeValueMemberN:
			value = expr.Value{Type: expr.Number, Text: v.Value}
		case *types.AttributeValueMemberS:
			value = expr.Value{Type: expr.Text, Text: v.Value}
		}
		if err := it.Put(name, value); err != nil {
			return nil, err
		}
	}
	return it, it.Check()
}
