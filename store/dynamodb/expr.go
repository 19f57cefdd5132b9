package dynamodb

import (
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store/dynamodb/internal/table"
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

// update collects the conditions and changes of one UpdateItem. Limit names reach expressions only through aliases.
type update struct {
	clauses []clauseOf
	numbers []byte // the values that are numbers, one after another
	ends    []int  // the end of each value in numbers; a text value is in texts instead
	texts   []string
}

type clauseOf struct {
	form clause
	attr string
}

// updates holds updates for reuse by later writes.
var updates = sync.Pool{New: func() any { return new(update) }}

func (u *update) reset() {
	clear(u.texts) // releases strings owned by others
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

// expression is the text of an update, which depends only on the forms and attributes of its clauses.
type expression struct {
	condition, change string
	names             map[string]string
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

// expressions caches texts, so that a bucket's usual write builds no strings.
type expressions struct {
	mu    sync.RWMutex
	known map[string]*expression
}

// maxExpressions bounds the cache. When it is full, it is cleared.
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

// values returns the values by name.
func (u *update) values() map[string]types.AttributeValue {
	all := string(u.numbers)
	m := make(map[string]types.AttributeValue, len(u.ends))
	ns := make([]types.AttributeValueMemberN, 0, len(u.ends))
	start := 0
	for i, end := range u.ends {
		if end == start {
			m[valueName(i)] = table.Str(u.texts[i])
			continue
		}
		ns = append(ns, types.AttributeValueMemberN{Value: all[start:end]})
		m[valueName(i)] = &ns[len(ns)-1]
		start = end
	}
	return m
}

// input returns a write to an item as the SDK takes it. The answer shows the whole item, whether it is applied or not.
func (u *update) input(table *string, key map[string]types.AttributeValue, x *expression) *dynamodb.UpdateItemInput {
	return &dynamodb.UpdateItemInput{
		TableName: table, Key: key, ConditionExpression: &x.condition, UpdateExpression: &x.change,
		ExpressionAttributeNames: x.names, ExpressionAttributeValues: u.values(),
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}
