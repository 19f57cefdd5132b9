package dynamotest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// node is an expression, or a part of one. Its op is "path", "value", a comparator, a keyword, or a function.
type node struct {
	op    string
	args  []*node
	alias string // of a value, with its colon
	path  []step
}

// step leads to an attribute or, without a name, to an element of a list. Before binding, a name may be an alias.
type step struct {
	name  string
	index int
}

// action is a part of an update: verb path value. REMOVE has no value.
type action struct {
	verb        string
	path, value *node
}

var (
	token    = regexp.MustCompile(`^\s*([#:]?\w+|<>|<=|>=|[=<>(),.\[\]+-])`)
	bareName = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	// reserved are the words of up to two letters that an expression must not use bare. All longer names need aliases
	// here: DynamoDB reserves hundreds of them.
	reserved = map[string]bool{
		"as": true, "at": true, "by": true, "do": true, "go": true, "if": true, "in": true, "is": true, "no": true,
		"of": true, "on": true, "or": true, "to": true,
	}
	// arity holds the number of arguments of the boolean functions of a condition.
	arity = map[string]int{
		"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2,
	}
)

// parser reads tokens. After the first error it is at the end.
type parser struct {
	tokens []string
	err    error
}

func newParser(text string) *parser {
	p := &parser{}
	for rest := text; strings.TrimSpace(rest) != ""; {
		m := token.FindStringSubmatch(rest)
		if m == nil {
			p.fail("invalid token in %q", text)
			return p
		}
		p.tokens, rest = append(p.tokens, m[1]), rest[len(m[0]):]
	}
	if len(p.tokens) == 0 {
		p.fail("the expression can not be empty")
	}
	return p
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = invalid("Invalid expression: "+format, args...)
	}
	p.tokens = nil
}

func (p *parser) peek(i int) string {
	if i < len(p.tokens) {
		return p.tokens[i]
	}
	return ""
}

func (p *parser) next() string {
	t := p.peek(0)
	p.tokens = p.tokens[min(1, len(p.tokens)):]
	return t
}

func (p *parser) accept(t string) bool {
	ok := strings.EqualFold(p.peek(0), t)
	if ok {
		p.next()
	}
	return ok
}

func (p *parser) expect(t string) {
	if !p.accept(t) {
		p.fail("%q where %q should be", p.peek(0), t)
	}
}

// end returns the first error; no tokens may be left.
func (p *parser) end() error {
	if len(p.tokens) > 0 {
		p.fail("%q is left", p.peek(0))
	}
	return p.err
}

func parseCondition(text string) (*node, error) {
	p := newParser(text)
	n := p.or()
	return n, p.end()
}

func parseProjection(text string) ([]*node, error) {
	p := newParser(text)
	paths := []*node{p.path()}
	for p.accept(",") {
		paths = append(paths, p.path())
	}
	return paths, p.end()
}

func parseUpdate(text string) ([]action, error) {
	p := newParser(text)
	var actions []action
	var verbs []string
	for len(p.tokens) > 0 {
		verb := strings.ToUpper(p.next())
		if slices.Contains(verbs, verb) {
			p.fail("the %s section can only be used once", verb)
		}
		verbs = append(verbs, verb)
		for more := true; more; more = p.accept(",") {
			a := action{verb: verb, path: p.path()}
			switch verb {
			case "SET":
				p.expect("=")
				a.value = p.sum()
			case "ADD", "DELETE":
				a.value = p.value()
			case "REMOVE":
			default:
				p.fail("%q begins no section", verb)
			}
			actions = append(actions, a)
		}
	}
	return actions, p.end()
}

func (p *parser) or() *node {
	n := p.and()
	for p.accept("OR") {
		n = &node{op: "OR", args: []*node{n, p.and()}}
	}
	return n
}

func (p *parser) and() *node {
	n := p.not()
	for p.accept("AND") {
		n = &node{op: "AND", args: []*node{n, p.not()}}
	}
	return n
}

func (p *parser) not() *node {
	if p.accept("NOT") {
		return &node{op: "NOT", args: []*node{p.not()}}
	}
	if p.accept("(") {
		n := p.or()
		p.expect(")")
		return n
	}
	if n := arity[p.peek(0)]; n > 0 && p.peek(1) == "(" {
		return p.call(n, p.operand)
	}
	left := p.operand()
	switch op := strings.ToUpper(p.next()); op {
	case "=", "<>", "<", "<=", ">", ">=":
		return &node{op: op, args: []*node{left, p.operand()}}
	case "BETWEEN":
		low := p.operand()
		p.expect("AND")
		return &node{op: op, args: []*node{left, low, p.operand()}}
	case "IN":
		n := &node{op: op, args: []*node{left}}
		p.expect("(")
		for more := true; more; more = p.accept(",") {
			n.args = append(n.args, p.operand())
		}
		p.expect(")")
		return n
	default:
		p.fail("%q is no comparator", op)
		return left
	}
}

// call parses a function of n arguments.
func (p *parser) call(n int, argument func() *node) *node {
	f := &node{op: p.next()}
	p.expect("(")
	for i := range n {
		if i > 0 {
			p.expect(",")
		}
		f.args = append(f.args, argument())
	}
	p.expect(")")
	return f
}

// operand parses an operand of a condition.
func (p *parser) operand() *node {
	switch {
	case strings.HasPrefix(p.peek(0), ":"):
		return p.value()
	case p.peek(0) == "size" && p.peek(1) == "(":
		return p.call(1, p.path)
	default:
		return p.path()
	}
}

// sum parses the value that an attribute is set to.
func (p *parser) sum() *node {
	n := p.addend()
	if op := p.peek(0); op == "+" || op == "-" {
		p.next()
		n = &node{op: op, args: []*node{n, p.addend()}}
	}
	return n
}

func (p *parser) addend() *node {
	switch {
	case strings.HasPrefix(p.peek(0), ":"):
		return p.value()
	case p.peek(0) == "if_not_exists" && p.peek(1) == "(":
		return p.call(2, p.addend)
	default:
		return p.path()
	}
}

func (p *parser) value() *node {
	t := p.next()
	if !strings.HasPrefix(t, ":") {
		p.fail("%q where a value should be", t)
	}
	return &node{op: "value", alias: t}
}

func (p *parser) path() *node {
	n := &node{op: "path"}
	for more := true; more; more = p.accept(".") {
		name := p.next()
		switch {
		case strings.HasPrefix(name, "#") && len(name) > 1:
		case !bareName.MatchString(name):
			p.fail("%q where a path should be", name)
		case len(name) > 2 || reserved[strings.ToLower(name)]:
			p.fail("attribute name may be a reserved keyword: %s", name)
		}
		n.path = append(n.path, step{name: name})
		for p.accept("[") {
			index, err := strconv.Atoi(p.next())
			if err != nil {
				p.fail("an index should be a number: %v", err)
			}
			p.expect("]")
			n.path = append(n.path, step{index: index})
		}
	}
	return n
}
