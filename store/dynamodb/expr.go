package dynamodb

import (
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// clause is a form of condition or change of one attribute. Its values follow it in the order of its text.
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
	setOnce                        // a = v, unless it has a value
	addTo                          // a + v
	remove                         // no a
)

// texts are the clauses' expressions: # stands for the attribute, ? for a value.
var texts = [...]string{
	condAbsent: "attribute_not_exists(#)", condExists: "attribute_exists(#)",
	condEqual: "# = ?", condBelow: "# < ?", condAtLeast: "# >= ?", condAtMost: "# <= ?", condBetween: "# BETWEEN ? AND ?",
	condAbsentEqual:  "(attribute_not_exists(#) OR # = ?)",
	condAbsentBelow:  "(attribute_not_exists(#) OR # < ?)",
	condAbsentAtMost: "(attribute_not_exists(#) OR # <= ?)",
	setTo:            "# = ?", setOnce: "# = if_not_exists(#, ?)", addTo: "# ?", remove: "#",
}

// update collects what one UpdateItem asserts and changes. Names of limits reach expressions only through aliases.
type update struct {
	clauses []clauseOf
	numbers []byte // the values that are numbers, one after another
	ends    []int  // of each value in numbers; a text has its place in texts
	texts   []string
}

type clauseOf struct {
	form clause
	attr string
}

// updates are kept for the next writes: what an input is made of does not refer to them.
var updates = sync.Pool{New: func() any { return new(update) }}

func (u *update) reset() {
	clear(u.texts) // which others own
	u.clauses, u.numbers, u.ends, u.texts = u.clauses[:0], u.numbers[:0], u.ends[:0], u.texts[:0]
}

func (u *update) op(form clause, attr string, values ...int64) {
	u.clauses = append(u.clauses, clauseOf{form, attr})
	for _, v := range values {
		u.numbers = strconv.AppendInt(u.numbers, v, 10)
		u.ends = append(u.ends, len(u.numbers))
		u.texts = append(u.texts, "")
	}
}

func (u *update) opText(form clause, attr, value string) {
	u.clauses = append(u.clauses, clauseOf{form, attr})
	u.ends = append(u.ends, len(u.numbers))
	u.texts = append(u.texts, value)
}

// expression is the text of an update, which depends on its clauses' forms and attributes alone.
type expression struct {
	condition, change string
	names             map[string]string
}

// valueNames are the names of values in expressions, by their places.
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

// expressions remembers texts, so that a bucket's usual write costs no building of strings.
type expressions struct {
	mu    sync.RWMutex
	known map[string]*expression
}

// maxExpressions bounds what is remembered; past it remembering starts anew.
const maxExpressions = 4096

func (e *expressions) of(u *update) *expression {
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
		e.known = make(map[string]*expression)
	}
	e.known[string(key)] = x
	return x
}

func (u *update) render() *expression {
	x := &expression{names: make(map[string]string)}
	alias := make(map[string]string)
	var conds, sets, adds, drops []string
	next := 0
	for _, c := range u.clauses {
		name := alias[c.attr]
		if name == "" {
			name = "#" + strconv.Itoa(len(alias))
			alias[c.attr], x.names[name] = name, c.attr
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
	x.condition = strings.Join(conds, " AND ")
	var change []string
	for _, part := range []struct {
		verb string
		list []string
	}{{"SET ", sets}, {"ADD ", adds}, {"REMOVE ", drops}} {
		if len(part.list) > 0 {
			change = append(change, part.verb+strings.Join(part.list, ", "))
		}
	}
	x.change = strings.Join(change, " ")
	return x
}

// values returns the values under their names.
func (u *update) values() map[string]types.AttributeValue {
	all := string(u.numbers)
	m := make(map[string]types.AttributeValue, len(u.ends))
	ns := make([]types.AttributeValueMemberN, 0, len(u.ends))
	start := 0
	for i, end := range u.ends {
		if end == start {
			m[valueName(i)] = str(u.texts[i])
			continue
		}
		ns = append(ns, types.AttributeValueMemberN{Value: all[start:end]})
		m[valueName(i)] = &ns[len(ns)-1]
		start = end
	}
	return m
}

// updateInput returns the UpdateItem, whose answer brings the whole item, be it yes or no.
func (s *Store) updateInput(u *update, key map[string]types.AttributeValue) *dynamodb.UpdateItemInput {
	x := s.expressions.of(u)
	return &dynamodb.UpdateItemInput{
		TableName: &s.cfg.Table, Key: key,
		ConditionExpression: &x.condition, UpdateExpression: &x.change,
		ExpressionAttributeNames: x.names, ExpressionAttributeValues: u.values(),
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}
