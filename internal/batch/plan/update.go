package plan

import (
	"maps"
	"strconv"
	"strings"
	"sync"
)

// clause is a form of condition on, or change to, one attribute. Its values follow in the order in which its text uses
// them.
type clause byte

const (
	condAbsent       clause = iota // attribute_not_exists(a)
	condExists                     // attribute_exists(a)
	condEqual                      // a = v
	condBelow                      // a < v
	condAtLeast                    // a >= v
	condAtMost                     // a <= v
	condBetween                    // a BETWEEN v AND w
	condAbsentEqual                // absent, or a = v
	condAbsentBelow                // absent, or a < v
	condAbsentAtMost               // absent, or a <= v
	setTo                          // a = v
	setOnce                        // a = v, unless a already has a value
	addTo                          // a = a + v
	remove                         // REMOVE a
)

// texts are the clauses' expressions. # stands for the attribute, ? for a value.
var texts = [...]string{
	condAbsent: "attribute_not_exists(#)", condExists: "attribute_exists(#)",
	condEqual: "# = ?", condBelow: "# < ?", condAtLeast: "# >= ?", condAtMost: "# <= ?",
	condBetween:      "# BETWEEN ? AND ?",
	condAbsentEqual:  "(attribute_not_exists(#) OR # = ?)",
	condAbsentBelow:  "(attribute_not_exists(#) OR # < ?)",
	condAbsentAtMost: "(attribute_not_exists(#) OR # <= ?)",
	setTo:            "# = ?", setOnce: "# = if_not_exists(#, ?)", addTo: "# ?", remove: "#",
}

// values returns the number of a clause's values.
func (c clause) values() int {
	switch c {
	case condAbsent, condExists, remove:
		return 0
	case condBetween:
		return 2
	default:
		return 1
	}
}

// Update is the conditions and changes of one UpdateItem. Limit names reach expressions only through aliases.
type Update struct {
	clauses []clauseOf
	numbers []byte // the values that are numbers, one after another
	ends    []int  // the end of each value in numbers; a text value is in texts instead
	texts   []string
}

type clauseOf struct {
	form clause
	attr string
}

// Reset empties the update, for reuse.
func (u *Update) Reset() {
	clear(u.texts) // releases strings owned by others
	u.clauses, u.numbers, u.ends, u.texts = u.clauses[:0], u.numbers[:0], u.ends[:0], u.texts[:0]
}

func (u *Update) op(form clause, attr string, values ...int64) {
	u.clauses = append(u.clauses, clauseOf{form, attr})
	for _, v := range values {
		u.numbers = strconv.AppendInt(u.numbers, v, 10)
		u.ends = append(u.ends, len(u.numbers))
		u.texts = append(u.texts, "")
	}
}

func (u *Update) opText(form clause, attr, value string) {
	u.clauses = append(u.clauses, clauseOf{form, attr})
	u.ends = append(u.ends, len(u.numbers))
	u.texts = append(u.texts, value)
}

// stamp counts the write, and notes its time.
func (u *Update) stamp(now int64) {
	u.op(setTo, attrAt, now)
	u.op(addTo, attrWrites, 1)
}

// count counts takes.
func (u *Update) count(n Counts) {
	if n.Takes > 0 {
		u.op(addTo, attrTakes, n.Takes)
	}
	if n.Undone > 0 {
		u.op(addTo, attrUndone, n.Undone)
	}
}

// List gives an item that has none of them the keys of the index that lists buckets.
func (u *Update) List(index, sort string) {
	u.opText(setOnce, attrIndex, index)
	u.opText(setOnce, attrSort, sort)
}

// Expression is the text of an update, which depends only on the forms and attributes of its clauses.
type Expression struct {
	Condition, Change string
	Names             map[string]string
}

// valueNames are the names of values in expressions, by index.
var valueNames = func() (names [512]string) {
	for i := range names {
		names[i] = ":" + strconv.Itoa(i)
	}
	return names
}()

func valueName(i int) string {
	if i < len(valueNames) {
		return valueNames[i]
	}
	return ":" + strconv.Itoa(i)
}

// Expressions caches texts, so that a bucket's usual write builds no strings. The zero value is ready to use.
type Expressions struct {
	mu    sync.RWMutex
	known map[string]*Expression
}

// maxExpressions bounds the cache. When it is full, it is cleared.
const maxExpressions = 4096

// Of returns the text of an update.
func (e *Expressions) Of(u *Update) *Expression {
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
	var conds, sets, adds, drops []string
	next := 0
	for _, c := range u.clauses {
		name := alias[c.attr]
		if name == "" {
			name = "#" + strconv.Itoa(len(alias))
			alias[c.attr], x.Names[name] = name, c.attr
		}
		var b strings.Builder
		for _, r := range texts[c.form] {
			switch r {
			case '#':
				b.WriteString(name)
			case '?':
				b.WriteString(valueName(next))
				next++
			default:
				b.WriteRune(r)
			}
		}
		switch {
		case c.form < setTo:
			conds = append(conds, b.String())
		case c.form < addTo:
			sets = append(sets, b.String())
		case c.form < remove:
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
			change = append(change, part.verb+strings.Join(part.list, ", "))
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

// Parse decodes the attributes of a bucket's shard.
func (a Attributes) Parse() (*Item, error) {
	if len(a) == 0 {
		return Missing, nil
	}
	it := NewItem(len(a))
	for name, v := range a {
		if err := it.Put(name, v); err != nil {
			return nil, err
		}
	}
	return it, it.Check()
}

// Apply returns what a table makes of an item: its attributes after the update, and whether the condition held. If it
// did not, the item stays as it is. An item without attributes does not exist.
func (u *Update) Apply(to Attributes) (after Attributes, applied bool) {
	var values []Value
	u.Each(func(_ string, v Value) { values = append(values, v) })
	rest := values
	for _, c := range u.clauses {
		n := c.form.values()
		if have, ok := to[c.attr]; c.form < setTo && !c.form.holds(have, ok, rest[:n]) {
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
		case c.form == setTo, c.form == setOnce && !ok, c.form == addTo && !ok:
			after[c.attr] = rest[0]
		case c.form == addTo:
			after[c.attr] = Value{Number, strconv.FormatInt(have.int()+rest[0].int(), 10)}
		case c.form == remove:
			delete(after, c.attr)
		}
		rest = rest[n:]
	}
	if _, ok := after[attrKey]; !ok {
		after[attrKey] = Value{Text, "key"} // every item in a table has one
	}
	return after, true
}

// int returns a number that this package wrote.
func (v Value) int() int64 {
	n, _ := v.number()
	return n
}

// holds reports whether a condition holds for an attribute. A comparison of values of different types does not.
func (c clause) holds(have Value, ok bool, with []Value) bool {
	alike := ok && len(with) > 0 && have.Type == with[0].Type
	switch c {
	case condAbsent:
		return !ok
	case condExists:
		return ok
	case condEqual:
		return alike && have.Text == with[0].Text
	case condBelow:
		return alike && have.int() < with[0].int()
	case condAtLeast:
		return alike && have.int() >= with[0].int()
	case condAtMost:
		return alike && have.int() <= with[0].int()
	case condBetween:
		return alike && have.int() >= with[0].int() && have.int() <= with[1].int()
	case condAbsentEqual:
		return !ok || alike && have.Text == with[0].Text
	case condAbsentBelow:
		return !ok || alike && have.int() < with[0].int()
	case condAbsentAtMost:
		return !ok || alike && have.int() <= with[0].int()
	default:
		return false // a change is no condition
	}
}
