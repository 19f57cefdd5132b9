package expr

import (
	"math"
	"strings"
	"testing"
)

// TestNumbers checks that numbers must be whole, and saturate.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"0": 0, "-7": -7, "9223372036854775807": math.MaxInt64, "9223372036854775808": math.MaxInt64,
		"-99999999999999999999999999999999999999": math.MinInt64,
	} {
		if n, err := (Value{Number, s}).AsInt(); err != nil || n != want {
			t.Errorf("%s: %d, %v", s, n, err)
		}
	}
	for _, s := range []string{"", "1.5", "1e3", "x"} {
		if n, err := (Value{Number, s}).AsInt(); err == nil {
			t.Errorf("%q: %d", s, n)
		}
	}
}

// hostile are names of limits that have a meaning in expressions, in the layout, or elsewhere.
var hostile = []string{
	"ttl", "#", "#0", ":0", ":v", "id", "L_x", "P_", "size", "SET", "PK", "a.b", "a-b", "a b", "[0]", "!", "%21", "x!1/1/1s", "é", "日本", "\u202e", "'; --",
}

// TestExpressions checks that names reach expressions only through aliases, one for each attribute, and values only
// through their positions.
func TestExpressions(t *testing.T) {
	t.Parallel()
	u := new(Update)
	for i, name := range hostile {
		u.Op(Between, "L_"+name, int64(i), int64(-i))
		u.Op(Add, "L_"+name, int64(i))
		u.Op(SetOnce, "L_"+name, 1)
	}
	u.OpText(Set, "s", "SET x")
	u.Op(Remove, "ttl")
	x := u.render()
	if len(x.Names) != len(hostile)+2 {
		t.Errorf("%d aliases", len(x.Names))
	}
	seen := map[string]bool{}
	for alias, name := range x.Names {
		if seen[name] || strings.Trim(alias, "#0123456789abcdefghijklmnopqrstuvwxyz") != "" {
			t.Errorf("alias %q of %q", alias, name)
		}
		seen[name] = true
	}
	if bad := strings.Trim(x.Condition+x.Change, ""); strings.ContainsFunc(bad, func(r rune) bool { return r > 0x7e || r == '!' || r == '%' || r == '.' || r == '-' }) {
		t.Errorf("%s; %s", x.Condition, x.Change)
	}
	var values []string
	u.Each(func(name string, _ Value) { values = append(values, name) })
	for _, name := range values {
		if strings.Count(x.Condition+" "+x.Change+" ", name+" ")+strings.Count(x.Change+x.Condition, name+",")+strings.Count(x.Change+x.Condition, name+")") == 0 {
			t.Errorf("value %s is not used", name)
		}
	}
	if len(values) != 4*len(hostile)+1 {
		t.Errorf("%d values", len(values))
	}
}

// TestExpressionText checks the text of a usual update.
func TestExpressionText(t *testing.T) {
	t.Parallel()
	u := new(Update)
	u.Op(Absent, "sc")
	u.Op(Equal, ID, 7)
	u.OpText(AbsentEqual, "s", "s")
	u.Op(AbsentBelow, "L_rpm", 10)
	u.Op(AtLeast, "ttl", 5)
	u.Op(Set, "L_rpm", 11)
	u.Op(Add, "D_rpm", 1)
	u.Op(SetOnce, ID, 8)
	u.Op(Remove, "oc")
	u.Op(Add, "wc", 1)
	x := u.render()
	const (
		condition = "attribute_not_exists(#0) AND #1 = :0 AND (attribute_not_exists(#2) OR #2 = :1) AND (attribute_not_exists(#3) OR #3 < :2) AND #4 >= :3"
		change    = "SET #3=:4,#1=if_not_exists(#1,:6) ADD #5 :5,#7 :7 REMOVE #6"
	)
	if x.Condition != condition {
		t.Errorf("condition %s", x.Condition)
	}
	if x.Change != change {
		t.Errorf("change %s", x.Change)
	}
	var e Expressions
	if first := e.Of(u); first != e.Of(u) {
		t.Error("not remembered")
	}
	u.Op(Exists, "at")
	if e.Of(u).Condition == condition {
		t.Error("taken for another")
	}
}
