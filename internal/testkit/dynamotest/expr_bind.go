package dynamotest

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// scope binds the expressions of one request to its names and values. It keeps the first error.
type scope struct {
	names  map[string]string
	values item
	used   map[string]bool
	err    error
}

func newScope(names map[string]string, values item) *scope {
	s := &scope{names: names, used: make(map[string]bool)}
	s.values, s.err = normalItem(values)
	if names != nil && len(names) == 0 || values != nil && len(values) == 0 {
		s.fail("ExpressionAttributeNames and ExpressionAttributeValues must not be empty")
	}
	return s
}

func (s *scope) fail(format string, args ...any) {
	if s.err == nil {
		s.err = invalid(format, args...)
	}
}

// done returns the first error; all names and values must have been used.
func (s *scope) done() error {
	for alias := range s.names {
		if !s.used[alias] {
			s.fail("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", alias)
		}
	}
	for alias := range s.values {
		if !s.used[alias] {
			s.fail("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", alias)
		}
	}
	return s.err
}

// condition binds a condition. Nil stays nil.
func (s *scope) condition(text *string) *bound {
	if text == nil {
		return nil
	}
	n, err := parseCondition(*text)
	return s.parsed(n, err)
}

func (s *scope) projection(text *string) []*bound {
	if text == nil {
		return nil
	}
	paths, err := parseProjection(*text)
	out := make([]*bound, 0, len(paths))
	for _, n := range paths {
		out = append(out, s.parsed(n, err))
	}
	s.distinct(out)
	return out
}

// change is a bound action.
type change struct {
	verb        string
	path, value *bound
}

func (s *scope) update(text *string) []change {
	if text == nil {
		return nil
	}
	actions, err := parseUpdate(*text)
	s.keep(err)
	changes := make([]change, 0, len(actions))
	paths := make([]*bound, 0, len(actions))
	for _, a := range actions {
		c := change{verb: a.verb, path: s.parsed(a.path, err)}
		if a.value != nil {
			c.value = s.parsed(a.value, err)
		}
		if k := c.value.constant(); a.verb == "ADD" && !slices.Contains([]string{"N", "SS", "NS", "BS"}, k) {
			s.fail("Incorrect operand type for operator or function; operator: ADD, operand type: %s", k)
		}
		changes, paths = append(changes, c), append(paths, c.path)
	}
	s.distinct(paths)
	return changes
}

// distinct rejects overlapping paths.
func (s *scope) distinct(paths []*bound) {
	if s.err != nil {
		return
	}
	for i, a := range paths {
		for _, b := range paths[:i] {
			n := min(len(a.path), len(b.path))
			if slices.Equal(a.path[:n], b.path[:n]) {
				s.fail("Two document paths overlap with each other; must remove or rewrite one of these paths")
			}
		}
	}
}

func (s *scope) keep(err error) {
	if s.err == nil {
		s.err = err
	}
}

// bound is a node with its aliases resolved.
type bound struct {
	op    string
	args  []*bound
	path  []step
	value types.AttributeValue
}

// constant returns the type of a constant, or "" if b is not a constant.
func (b *bound) constant() string {
	if b == nil || b.op != "value" || b.value == nil {
		return ""
	}
	return kind(b.value)
}

func (s *scope) parsed(n *node, err error) *bound {
	s.keep(err)
	if s.err != nil {
		return &bound{}
	}
	return s.bind(n)
}

func (s *scope) bind(n *node) *bound {
	b := &bound{op: n.op}
	for _, arg := range n.args {
		b.args = append(b.args, s.bind(arg))
	}
	if n.op == "value" {
		s.used[n.alias] = true
		if b.value = s.values[n.alias]; b.value == nil {
			s.fail("An expression attribute value used in expression is not defined; attribute value: %s", n.alias)
		}
	}
	for _, st := range n.path {
		if strings.HasPrefix(st.name, "#") {
			s.used[st.name] = true
			name := s.names[st.name]
			if name == "" {
				s.fail(
					"An expression attribute name used in the document path is not defined; attribute name: %s",
					st.name,
				)
			}
			st.name = name
		}
		b.path = append(b.path, st)
	}
	s.check(b)
	return b
}

// check rejects what DynamoDB rejects for any item.
func (s *scope) check(b *bound) {
	allowed := []string{"N", "S", "B"}
	switch b.op {
	case "attribute_exists", "attribute_not_exists", "if_not_exists":
		if b.args[0].op != "path" {
			s.fail("Operator or function requires a document path; operator or function: %s", b.op)
		}
		return
	case "attribute_type":
		t, ok := b.args[1].value.(*types.AttributeValueMemberS)
		if !ok || !slices.Contains([]string{"S", "N", "B", "SS", "NS", "BS", "BOOL", "NULL", "L", "M"}, t.Value) {
			s.fail("Invalid attribute type name found")
		}
		return
	case "+", "-":
		allowed = []string{"N"}
	case "begins_with":
		allowed = []string{"S", "B"}
	case "<", "<=", ">", ">=":
	case "BETWEEN":
		low, high := b.args[1], b.args[2]
		order, ok := compare(low.value, high.value)
		if low.constant() != "" && high.constant() != "" && (!ok || order > 0) {
			s.fail(
				"The BETWEEN operator requires upper bound to be greater than or equal to lower bound, and of its type",
			)
		}
	case "=", "<>", "contains":
		allowed = nil
	default:
		return
	}
	for i, arg := range b.args {
		if k := arg.constant(); k != "" && allowed != nil && !slices.Contains(allowed, k) {
			s.fail(
				"Incorrect operand type for operator or function; operator or function: %s, operand type: %s", b.op, k,
			)
		}
		if i == 1 && arg.op == "path" && b.args[0].op == "path" && b.op != "+" && b.op != "-" &&
			slices.Equal(arg.path, b.args[0].path) {
			s.fail(
				"The first operand must be distinct from the remaining operands for this operator or function; "+
					"operator: %s",
				b.op,
			)
		}
	}
}
