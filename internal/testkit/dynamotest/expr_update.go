package dynamotest

import (
	"maps"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
)

var errPath = invalid("The document path provided in the update expression is invalid for update")

// apply returns the item after the changes, each of which sees the original item. It does not modify the item itself.
func apply(it item, changes []change) (item, error) {
	out := maps.Clone(it)
	for _, c := range changes {
		var v types.AttributeValue
		var err error
		switch c.verb {
		case "SET":
			v, err = c.value.set(it)
		case "ADD":
			if v = c.value.value; kind(v) != "N" {
				return nil, unsupported("ADD to sets")
			}
			if old := follow(it, c.path.path); old != nil {
				v, err = sum(old, v, 1)
			}
		case "DELETE":
			return nil, unsupported("DELETE from sets")
		}
		if err == nil {
			out, err = place(out, c.path.path, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// set returns the value that an attribute is set to.
func (b *bound) set(it item) (types.AttributeValue, error) {
	switch b.op {
	case "+", "-":
		x, err := b.args[0].set(it)
		if err != nil {
			return nil, err
		}
		y, err := b.args[1].set(it)
		if err != nil {
			return nil, err
		}
		sign := int64(1)
		if b.op == "-" {
			sign = -1
		}
		return sum(x, y, sign)
	case "if_not_exists":
		if v := b.args[0].eval(it); v != nil {
			return v, nil
		}
		return b.args[1].set(it)
	default:
		v := b.eval(it)
		if v == nil {
			return nil, invalid("The provided expression refers to an attribute that does not exist in the item")
		}
		return v, nil
	}
}

// sum returns a + sign × b.
func sum(a, b types.AttributeValue, sign int64) (types.AttributeValue, error) {
	x, okX := a.(*types.AttributeValueMemberN)
	y, okY := b.(*types.AttributeValueMemberN)
	if !okX || !okY {
		return nil, invalid("An operand in the update expression has an incorrect data type")
	}
	m, err := sizes.ParseNumber(x.Value)
	if err != nil {
		return nil, err
	}
	n, err := sizes.ParseNumber(y.Value)
	if err != nil {
		return nil, err
	}
	total, err := m.Add(n, sign)
	return &types.AttributeValueMemberN{Value: total.String()}, err
}

// place returns the item with v at path, or with the value at path removed if v is nil.
func place(it item, path []step, v types.AttributeValue) (item, error) {
	name, rest := path[0].name, path[1:]
	if name == "" {
		return nil, errPath
	}
	if len(rest) > 0 {
		inner, err := placeIn(it[name], rest, v)
		if err != nil {
			return nil, err
		}
		v = inner
	}
	out := maps.Clone(it)
	if v == nil {
		delete(out, name)
	} else {
		out[name] = v
	}
	return out, nil
}

func placeIn(container types.AttributeValue, path []step, v types.AttributeValue) (types.AttributeValue, error) {
	switch c := container.(type) {
	case *types.AttributeValueMemberM:
		m, err := place(c.Value, path, v)
		return &types.AttributeValueMemberM{Value: m}, err
	case *types.AttributeValueMemberL:
		return nil, unsupported("updates of what is in a list")
	default:
		return nil, errPath
	}
}
