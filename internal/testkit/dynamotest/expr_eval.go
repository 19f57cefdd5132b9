package dynamotest

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// holds reports whether a condition is true of an item. A nil condition is true.
func (b *bound) holds(it item) bool {
	if b == nil {
		return true
	}
	switch b.op {
	case "AND":
		return b.args[0].holds(it) && b.args[1].holds(it)
	case "OR":
		return b.args[0].holds(it) || b.args[1].holds(it)
	case "NOT":
		return !b.args[0].holds(it)
	}
	left := b.args[0].eval(it)
	switch b.op {
	case "attribute_exists":
		return left != nil
	case "attribute_not_exists":
		return left == nil
	}
	for _, arg := range b.args[1:] {
		right := arg.eval(it)
		if left == nil || right == nil {
			if b.op == "<>" {
				return true
			}
			if b.op == "IN" && left != nil {
				continue
			}
			return false
		}
		if b.op == "IN" && equal(left, right) {
			return true
		}
	}
	switch b.op {
	case "IN":
		return false
	case "BETWEEN":
		return ordered(">=", left, b.args[1].eval(it)) && ordered("<=", left, b.args[2].eval(it))
	case "attribute_type":
		return kind(left) == b.args[1].value.(*types.AttributeValueMemberS).Value
	case "begins_with":
		return beginsWith(left, b.args[1].eval(it))
	case "contains":
		return contains(left, b.args[1].eval(it))
	case "=":
		return equal(left, b.args[1].eval(it))
	case "<>":
		return !equal(left, b.args[1].eval(it))
	default:
		return ordered(b.op, left, b.args[1].eval(it))
	}
}

func ordered(op string, a, b types.AttributeValue) bool {
	order, ok := compare(a, b)
	switch op {
	case "<":
		return ok && order < 0
	case "<=":
		return ok && order <= 0
	case ">":
		return ok && order > 0
	default:
		return ok && order >= 0
	}
}

func beginsWith(v, prefix types.AttributeValue) bool {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		p, ok := prefix.(*types.AttributeValueMemberS)
		return ok && strings.HasPrefix(v.Value, p.Value)
	case *types.AttributeValueMemberB:
		p, ok := prefix.(*types.AttributeValueMemberB)
		return ok && bytes.HasPrefix(v.Value, p.Value)
	default:
		return false
	}
}

func contains(v, part types.AttributeValue) bool {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		p, ok := part.(*types.AttributeValueMemberS)
		return ok && strings.Contains(v.Value, p.Value)
	case *types.AttributeValueMemberSS:
		p, ok := part.(*types.AttributeValueMemberS)
		return ok && slices.Contains(v.Value, p.Value)
	case *types.AttributeValueMemberNS:
		p, ok := part.(*types.AttributeValueMemberN)
		return ok && slices.Contains(v.Value, p.Value)
	case *types.AttributeValueMemberL:
		return slices.ContainsFunc(v.Value, func(e types.AttributeValue) bool { return equal(e, part) })
	default:
		return false
	}
}

// eval returns the value of a condition's operand for an item, or nil if it is missing.
func (b *bound) eval(it item) types.AttributeValue {
	switch b.op {
	case "value":
		return b.value
	case "path":
		return follow(it, b.path)
	default: // size
		var n int
		switch v := b.args[0].eval(it).(type) {
		case *types.AttributeValueMemberS:
			n = len(v.Value)
		case *types.AttributeValueMemberB:
			n = len(v.Value)
		case *types.AttributeValueMemberSS:
			n = len(v.Value)
		case *types.AttributeValueMemberNS:
			n = len(v.Value)
		case *types.AttributeValueMemberL:
			n = len(v.Value)
		case *types.AttributeValueMemberM:
			n = len(v.Value)
		default:
			return nil
		}
		return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
	}
}

// follow returns the value at a path, or nil if there is none.
func follow(it item, path []step) types.AttributeValue {
	var at types.AttributeValue = &types.AttributeValueMemberM{Value: it}
	for _, st := range path {
		switch v := at.(type) {
		case *types.AttributeValueMemberM:
			if at = v.Value[st.name]; st.name == "" || at == nil {
				return nil
			}
		case *types.AttributeValueMemberL:
			if st.name != "" || st.index >= len(v.Value) {
				return nil
			}
			at = v.Value[st.index]
		default:
			return nil
		}
	}
	return at
}

// project returns the values at the paths, within their containers. Lists close up around elements that are left out.
func project(it item, paths []*bound) item {
	out := item{}
	for _, p := range paths {
		v := follow(it, p.path)
		if v == nil {
			continue
		}
		at := out
		for i, st := range p.path {
			if st.name == "" {
				continue // the list itself is handled below
			}
			if i+1 == len(p.path) {
				at[st.name] = v
				break
			}
			if p.path[i+1].name == "" {
				list, ok := at[st.name].(*types.AttributeValueMemberL)
				if !ok {
					list = &types.AttributeValueMemberL{}
					at[st.name] = list
				}
				list.Value = append(list.Value, v)
				break
			}
			inner, ok := at[st.name].(*types.AttributeValueMemberM)
			if !ok {
				inner = &types.AttributeValueMemberM{Value: item{}}
				at[st.name] = inner
			}
			at = inner.Value
		}
	}
	return out
}
