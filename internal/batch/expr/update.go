// Package expr writes conditions and changes of items as expressions of DynamoDB.
package expr

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
)

// Key is the attribute that every item has, and ID the one that a bucket's item has unless it is an empty place.
const (
	Key = "PK"
	ID  = "id"
)

// Clause is a form of condition on, or change to, one attribute. Its values follow in the order in which its text uses
// them.
type Clause byte

// The clauses. Those from Set on are changes.
const (
	Absent        Clause = iota // attribute_not_exists(a)
	Exists                      // attribute_exists(a)
	Equal                       // a = v
	Below                       // a < v
	AtLeast                     // a >= v
	AtMost                      // a <= v
	Between                     // a BETWEEN v AND w
	AbsentEqual                 // absent, or a = v
	AbsentBelow                 // absent, or a < v
	AbsentAtMost                // absent, or a <= v
	AbsentAtLeast               // absent, or a >= v
	UnbornEqual                 // the item does not exist, or a = v
	Set                         // a = v
	SetOnce                     // a = v, unless a already has a value
	Add                         // a = a + v
	Remove                      // REMOVE a
)

// texts are the clauses' expressions. # stands for the attribute, @ for the item's id, ? for a value. They are short
// because an expression may have 4 KB.
var texts = [...]string{
	Absent: "attribute_not_exists(#)", Exists: "attribute_exists(#)",
	Equal: "# = ?", Below: "# < ?", AtLeast: "# >= ?", AtMost: "# <= ?",
	Between:      "# BETWEEN ? AND ?",
	AbsentEqual:  "(attribute_not_exists(#) OR # = ?)",
	AbsentBelow:  "(attribute_not_exists(#) OR # < ?)",
	AbsentAtMost: "(attribute_not_exists(#) OR # <= ?)", AbsentAtLeast: "(attribute_not_exists(#) OR # >= ?)",
	UnbornEqual: "(attribute_not_exists(@) OR # = ?)",
	Set:         "#=?", SetOnce: "#=if_not_exists(#,?)", Add: "# ?", Remove: "#",
}

// values returns the number of a Clause's values.
func (c Clause) values() int {
	switch c {
	case Absent, Exists, Remove:
		return 0
	case Between:
		return 2
	default:
		return 1
	}
}

// Value is an attribute's value.
type Value struct {
	Type Type
	Text string // a number in decimal
}

// Type is the type of an attribute.
type Type byte

// The types of attributes. No attribute of an item is of another type than a number or a text.
const (
	Other Type = iota
	Number
	Text
)

// ErrNotNumber reports a value that is not a whole number.
var ErrNotNumber = errors.New("is not a whole number")

var errNotText = errors.New("is not a string")

// AsInt reads a whole number, saturating.
func (v Value) AsInt() (int64, error) {
	if v.Type != Number {
		return 0, ErrNotNumber
	}
	i, err := strconv.ParseInt(v.Text, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return i, nil // ParseInt saturates
	}
	return 0, ErrNotNumber
}

// AsUint reads a whole number that is not negative.
func (v Value) AsUint() (uint64, error) {
	n, err := v.AsInt()
	if err != nil || n < 0 {
		return 0, ErrNotNumber
	}
	return uint64(n), nil
}

// AsText reads a text.
func (v Value) AsText() (string, error) {
	if v.Type != Text {
		return "", errNotText
	}
	return v.Text, nil
}

// Update is the conditions and changes of one UpdateItem. Limit names reach expressions only through aliases.
type Update struct {
	clauses []clauseOf
	numbers []byte // the values that are numbers, one after another
	ends    []int  // the end of each value in numbers; a text value is in texts instead
	texts   []string
}

type clauseOf struct {
	form Clause
	attr string
}

// Reset empties the update, for reuse.
func (u *Update) Reset() {
	clear(u.texts) // releases strings owned by others
	u.clauses, u.numbers, u.ends, u.texts = u.clauses[:0], u.numbers[:0], u.ends[:0], u.texts[:0]
}

// Op adds a clause on an attribute, with its numbers.
func (u *Update) Op(form Clause, attr string, values ...int64) {
	u.clauses = append(u.clauses, clauseOf{form, attr})
	for _, v := range values {
		u.numbers = strconv.AppendInt(u.numbers, v, 10)
		u.ends = append(u.ends, len(u.numbers))
		u.texts = append(u.texts, "")
	}
}

// OpText adds a clause on an attribute, with a text.
func (u *Update) OpText(form Clause, attr, value string) {
	u.clauses = append(u.clauses, clauseOf{form, attr})
	u.ends = append(u.ends, len(u.numbers))
	u.texts = append(u.texts, value)
}

// Expression is the text of an update, which depends only on the forms and attributes of its clauses.
type Expression struct {
	Condition, Change string
	Names             map[string]string
}

// valueNames are the names of values in expressions, by index.
var valueNames = func() (names [512]string) {
	for i := range names {
		names[i] = ":" + short(i)
	}
	return names
}()

func valueName(i int) string {
	if i < len(valueNames) {
		return valueNames[i]
	}
	return ":" + short(i)
}

// short returns a name of at most two letters and digits for a number below 1,296.
func short(i int) string { return strconv.FormatInt(int64(i), 36) }

// Expressions caches texts, so that a bucket's usual write builds no strings. The zero value is ready to use.
type Expressions struct {
	mu    sync.RWMutex
	known map[string]*Expression
}

// maxExpressions bounds the cache: when it is full, it is cleared. Texts of more than maxClauses clauses are not kept:
// they are long, and there are many of them.
const (
	maxExpressions = 4096
	maxClauses     = 64
)

// Of returns the text of an update.
func (e *Expressions) Of(u *Update) *Expression {
	if len(u.clauses) > maxClauses {
		return u.render()
	}
	var space [512]byte
	key := space[:0]
	for _, c := range u.clauses {
		key = append(append(append(key, byte(c.form)), c.attr...), 0)
	}
	e.mu.RLock()
	x := e.known[string(key)]
	e.mu.RUnlock()
	if x != nil {
		return x
	}
	x = u.render()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known == nil || len(e.known) >= maxExpressions {
		e.known = make(map[string]*Expression)
	}
	e.known[string(key)] = x
	return x
}

func (u *Update) render() *Expression {
	x := &Expression{Names: make(map[string]string)}
	alias := make(map[string]string)
	named := func(attr string) string {
		if alias[attr] == "" {
			name := "#" + short(len(alias))
			alias[attr], x.Names[name] = name, attr
		}
		return alias[attr]
	}
	var conds, sets, adds, drops []string
	next := 0
	for _, c := range u.clauses {
		var b strings.Builder
		for _, r := range texts[c.form] {
			switch r {
			case '#':
				b.WriteString(named(c.attr))
			case '@':
				b.WriteString(named(ID))
			case '?':
				b.WriteString(valueName(next))
				next++
			default:
				b.WriteRune(r)
			}
		}
		switch {
		case c.form < Set:
			conds = append(conds, b.String())
		case c.form < Add:
			sets = append(sets, b.String())
		case c.form < Remove:
			adds = append(adds, b.String())
		default:
			drops = append(drops, b.String())
		}
	}
	x.Condition = strings.Join(conds, " AND ")
	var change []string
	for _, part := range []struct {
		verb string
		list []string
	}{{"SET ", sets}, {"ADD ", adds}, {"REMOVE ", drops}} {
		if len(part.list) > 0 {
			change = append(change, part.verb+strings.Join(part.list, ","))
		}
	}
	x.Change = strings.Join(change, " ")
	return x
}

// Len returns the number of values.
func (u *Update) Len() int { return len(u.ends) }

// Each calls f for each value, in order.
func (u *Update) Each(f func(name string, v Value)) {
	all, start := string(u.numbers), 0
	for i, end := range u.ends {
		v := Value{Text, u.texts[i]}
		if end > start {
			v = Value{Number, all[start:end]}
		}
		start = end
		f(valueName(i), v)
	}
}

// Attributes are the attributes of an item, by name.
type Attributes map[string]Value

// Apply returns what a table makes of an item: its attributes after the update, and whether the condition held. If it
// did not, the item stays as it is. An item without attributes does not exist.
func (u *Update) Apply(to Attributes) (after Attributes, applied bool) {
	var values []Value
	u.Each(func(_ string, v Value) { values = append(values, v) })
	rest := values
	_, born := to[ID]
	for _, c := range u.clauses {
		n := c.form.values()
		if have, ok := to[c.attr]; c.form < Set && !c.form.holds(have, ok, born, rest[:n]) {
			return to, false
		}
		rest = rest[n:]
	}
	after = maps.Clone(to)
	if after == nil {
		after = make(Attributes)
	}
	rest = values
	for _, c := range u.clauses {
		n := c.form.values()
		have, ok := to[c.attr]
		switch {
		case c.form == Set, c.form == SetOnce && !ok, c.form == Add && !ok:
			after[c.attr] = rest[0]
		case c.form == Add:
			after[c.attr] = Value{Number, strconv.FormatInt(have.int()+rest[0].int(), 10)}
		case c.form == Remove:
			delete(after, c.attr)
		}
		rest = rest[n:]
	}
	if _, ok := after[Key]; !ok {
		after[Key] = Value{Text, "key"} // every item in a table has one
	}
	return after, true
}

// int returns a number that this package wrote.
func (v Value) int() int64 {
	n, _ := v.AsInt()
	return n
}

// holds reports whether a condition holds for an attribute. A comparison of values of different types does not.
func (c Clause) holds(have Value, ok, born bool, with []Value) bool {
	alike := ok && len(with) > 0 && have.Type == with[0].Type
	switch c {
	case Absent:
		return !ok
	case Exists:
		return ok
	case Equal:
		return alike && have.Text == with[0].Text
	case Below:
		return alike && have.int() < with[0].int()
	case AtLeast:
		return alike && have.int() >= with[0].int()
	case AtMost:
		return alike && have.int() <= with[0].int()
	case Between:
		return alike && have.int() >= with[0].int() && have.int() <= with[1].int()
	case AbsentEqual:
		return !ok || alike && have.Text == with[0].Text
	case AbsentBelow:
		return !ok || alike && have.int() < with[0].int()
	case AbsentAtMost:
		return !ok || alike && have.int() <= with[0].int()
	case AbsentAtLeast:
		return !ok || alike && have.int() >= with[0].int()
	case UnbornEqual:
		return !born || alike && have.Text == with[0].Text
	default:
		return false // a change is no condition
	}
}
