package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// The values of returns.
const returnsFull, returnsStrict = "full", "strict"

// Balance stands for the period of a balance.
const Balance = "balance"

// shortLimit reads a limit in its text form without the name: 50K/min:75K, 5000/month@Europe/Berlin, or balance.
func (r *Reader) shortLimit(k, n *yaml.Node, path string) (weir.Limit, bool) {
	if r.Follow(n).Tag != "!!str" {
		hint := shortHint
		if name, form, ok := strings.Cut(k.Value, ":"); ok {
			hint = "write " + name + ": " + form + " with a space"
		}
		r.Not(n, path, hint, "text or a mapping")
		return weir.Limit{}, false
	}
	text, _, ok := r.Scalar(n, path, "text")
	if !ok {
		return weir.Limit{}, false
	}
	return r.parse(n, path, "x:"+text, shortHint)
}

// limitPeriod reads what an amount is issued in: a duration, a quota's window, or that the limit is a balance.
func (r *Reader) limitPeriod(n *yaml.Node, path string, l *weir.Limit) (ok bool) {
	text, tag, ok := r.Scalar(n, path, "a duration")
	unit, _, _ := strings.Cut(text, "+")
	switch {
	case !ok:
		return false
	case tag == "!!str" && text == Balance:
		l.Period, l.Balance = 0, true
		return true
	case tag == "!!str" && (strings.Contains(text, "@") || unit == "month" || unit == "quarter" || unit == "year"):
		parsed, ok := r.parse(n, path, "x:1/"+text, shortHint)
		l.Period, l.Window = 0, parsed.Window
		return ok
	}
	l.Period, ok = r.Period(n, path)
	return ok
}

// parse reads the text form of a limit.
func (r *Reader) parse(n *yaml.Node, path, text, hint string) (weir.Limit, bool) {
	l, err := weir.ParseLimit(text)
	var bad *weir.ConfigError
	if errors.As(err, &bad) {
		reason, _, _ := strings.Cut(bad.Reason, "; write name:")
		if _, part, ok := strings.Cut(bad.Field, ": "); ok {
			reason = part + " " + reason
		}
		r.Bad(r.Follow(n), path, hint, "%s", reason)
	}
	return l, err == nil
}

// FormatLimit returns the shortest form of a limit. Its capacity is the amount; another burst is written separately.
func FormatLimit(l weir.Limit) string {
	form := ShortestLimit(l)
	if form == (LimitForm{RefillPeriod: Balance}) {
		return Balance
	}
	if form == (LimitForm{Slots: form.Slots, Heal: form.Heal}) && l.Slots > 0 {
		l.Name = "x"
		return strings.TrimPrefix(l.String(), "x:")
	}
	var parts []string
	put := func(name, value string) {
		if value != "" && value != "0" {
			parts = append(parts, name+": "+value)
		}
	}
	put("slots", strconv.FormatInt(form.Slots, 10))
	put("heal", form.Heal)
	put("capacity", strconv.FormatInt(form.Capacity, 10))
	put("burst", strconv.FormatInt(form.Burst, 10))
	switch period := form.RefillPeriod.(type) {
	case int64:
		put("refill_period", strings.TrimSuffix(PeriodText(l.Period), "s"))
	case string:
		put("refill_period", period)
	}
	put("enforce", form.Enforce)
	put("former", form.Former)
	put("max_debt", strconv.FormatInt(form.MaxDebt, 10))
	put("returns", form.Returns)
	return "{" + strings.Join(parts, ", ") + "}"
}

// LimitForm is a limit as a manifest writes it. What is left out is zero.
type LimitForm struct {
	Capacity     int64  `json:"capacity,omitempty"`
	Burst        int64  `json:"burst,omitempty"`
	RefillPeriod any    `json:"refill_period,omitempty"` // seconds, or text
	Slots        int64  `json:"slots,omitempty"`
	Heal         string `json:"heal,omitempty"`
	Enforce      string `json:"enforce,omitempty"`
	Former       string `json:"former,omitempty"`
	MaxDebt      int64  `json:"max_debt,omitempty"`
	Returns      string `json:"returns,omitempty"`
}

// ShortestLimit returns the members of the shortest form of a limit.
func ShortestLimit(l weir.Limit) LimitForm {
	form := LimitForm{Capacity: l.Amount, MaxDebt: l.MaxDebt, Slots: l.Slots}
	if l.Burst != l.Amount {
		form.Burst = l.Burst
	}
	switch {
	case l.Slots > 0 && l.Heal != record.DefaultHeal:
		form.Heal = PeriodText(l.Heal)
	case l.Slots > 0:
	case l.Balance:
		form.RefillPeriod = Balance
	case l.Period == 0:
		form.RefillPeriod = l.Window.String()
	case l.Period == time.Minute:
	case l.Period%time.Second == 0:
		form.RefillPeriod = int64(l.Period / time.Second)
	default:
		form.RefillPeriod = PeriodText(l.Period)
	}
	if l.Enforce != weir.EnforceOn {
		form.Enforce = l.Enforce.String()
	}
	if l.Former != (weir.Rate{}) {
		form.Former = strings.TrimPrefix(Former(l).String(), l.Name+":")
	}
	if l.Strict {
		form.Returns = returnsStrict
	}
	return form
}

// Former returns the limit as it is for the entities outside its percentage, if it has a former rate.
func Former(l weir.Limit) weir.Limit {
	f := l.Former
	l.Amount, l.Period, l.Burst, l.Window, l.Slots, l.Heal = f.Amount, f.Period, f.Burst, f.Window, f.Slots, f.Heal
	l.Enforce, l.Former = weir.EnforceOn, weir.Rate{}
	return l
}

// ID checks an ID.
func (r *Reader) ID(n *yaml.Node, path, id string) bool {
	return r.id(n, path, id, admin.Scope{Entity: id})
}

// Group checks the name of a group.
func (r *Reader) Group(n *yaml.Node, path, name string) bool {
	return r.id(n, path, name, admin.Scope{Resource: weir.GroupResource(name)})
}

func (r *Reader) id(n *yaml.Node, path, id string, scope admin.Scope) bool {
	n = r.Follow(n)
	hint := "an id has 1 to 256 printable bytes and must not be _, wcu or " + weir.DefaultResource
	if store.Aggregate(id) {
		hint = "write limits on a group under groups and its name, those on all resources together under total"
	}
	var bad *weir.ConfigError
	if id == "" {
		r.Bad(n, path, "", "must not be empty")
	} else if err := scope.Validate(); errors.As(err, &bad) {
		r.Bad(n, path, hint, "%s", bad.Reason)
	} else {
		return true
	}
	return false
}

const (
	limitsHint = "write {rpm: 60/min}, or a list such as [rpm:60/min]"
	shortHint  = "write 50K/min:75K, 5000/month@Europe/Berlin, 20slots or balance"
	formerHint = "write 50K/min:75K, 5000/month@Europe/Berlin or 20slots"
	namedHint  = "write rpm:60/min, usd:5000/month@Europe/Berlin, parallel:20slots or {name: rpm, capacity: 60}"
)

// Limits reads limits, in a mapping or a list, and returns them by name.
func (r *Reader) Limits(n *yaml.Node, path string) ([]weir.Limit, bool) {
	if n = r.Follow(n); n.Kind != yaml.SequenceNode && n.Kind != yaml.MappingNode {
		r.Not(n, path, limitsHint, "a mapping or a list")
		return nil, false
	}
	var ls []weir.Limit
	given := len(n.Content)
	if n.Kind == yaml.SequenceNode {
		ls = r.listed(n, path)
	} else {
		given /= 2
		r.Mapping(n, path, func(name string, k, v *yaml.Node) {
			at := path + "." + Quote(name)
			if !r.ID(k, at, name) {
				return
			}
			l, ok := r.limit(k, v, at, false)
			if l.Name = name; ok {
				ls = append(ls, l)
			}
		})
	}
	if given == 0 {
		r.Bad(n, path, limitsHint, "needs at least one limit")
	}
	if given == 0 || len(ls) < given {
		return nil, false
	}
	slices.SortFunc(ls, byName)
	var bad *weir.ConfigError
	if err := (&admin.ScopedLimits{Scope: anyScope, Limits: ls}).Validate(); errors.As(err, &bad) {
		r.Bad(n, path, "", "%s", strings.TrimPrefix(bad.Error(), "limits: "))
		return nil, false
	}
	return ls, true
}

func byName(a, b weir.Limit) int { return cmp.Compare(a.Name, b.Name) }

// listed reads a list of limits: those that are right.
func (r *Reader) listed(n *yaml.Node, path string) (ls []weir.Limit) {
	first := make(map[string]int)
	r.List(n, path, func(at string, v *yaml.Node) {
		v = r.Follow(v)
		var l weir.Limit
		var ok bool
		switch {
		case v.Kind == yaml.MappingNode && len(v.Content) == 2 && !slices.Contains(limitKeys, v.Content[0].Value):
			r.Bad(v, at, "write rpm:60/min without a space, or {name: rpm, capacity: 60}", "is a mapping of one key")
		case v.Kind == yaml.MappingNode:
			l, ok = r.limit(v, v, at, true)
		case r.IsText(v):
			var text string
			if text, _, ok = r.Scalar(v, at, "text"); ok {
				l, ok = r.parse(v, at, text, namedHint)
			}
		default:
			r.Not(v, at, namedHint, "text or a mapping")
		}
		if line := first[l.Name]; ok && line > 0 {
			r.Bad(v, at, "", "has the name %s, as the limit in line %d", Quote(l.Name), line)
			ok = false
		}
		if ok {
			first[l.Name] = v.Line
			ls = append(ls, l)
		}
	})
	return ls
}

var limitKeys = []string{
	"name", "capacity", "burst", "refill_amount", "refill_period", "enforce", "former", "max_debt", "returns", "slots",
	"heal",
}

// limit reads a limit, with its name if it is in a list.
func (r *Reader) limit(k, n *yaml.Node, path string, listed bool) (l weir.Limit, good bool) {
	var capacity int64
	good = true
	has, keys := false, limitKeys[1:]
	if listed {
		keys = limitKeys
	} else if r.Follow(n).Kind == yaml.ScalarNode {
		return r.shortLimit(k, n, path)
	}
	isMap := r.Fields(n, path, keys, func(key string, v *yaml.Node) {
		var ok bool
		switch at := path + "." + key; key {
		case "name":
			l.Name, ok = r.Text(v, at)
			ok = ok && r.ID(v, at, l.Name)
		case "capacity":
			has = true
			capacity, ok = r.Count(v, at)
		case "burst":
			l.Burst, ok = r.Count(v, at)
		case "refill_amount":
			l.Amount, ok = r.Count(v, at)
		case "max_debt":
			l.MaxDebt, ok = r.Count(v, at)
		case "enforce":
			l.Enforce, ok = r.enforce(v, at)
		case "former":
			l.Former, ok = r.former(v, at)
		case "returns":
			l.Strict, ok = r.returns(v, at)
		case "slots":
			has = true
			l.Slots, ok = r.Count(v, at)
		case "heal":
			l.Heal, ok = r.Period(v, at)
		default:
			ok = r.limitPeriod(v, at, &l)
		}
		good = good && ok
	})
	if isMap && listed && good && l.Name == "" {
		r.Bad(k, path, "add name: NAME", "name is missing")
		good = false
	}
	has = has || l.Balance
	switch {
	case isMap && !has && l.Heal != 0:
		r.Bad(k, path, "add slots: how many can be held at once", "slots is missing")
	case isMap && !has:
		r.Bad(
			k, path, "add capacity: the tokens issued in each refill_period and, by default, the burst",
			"capacity is missing",
		)
	case l.Slots > 0:
		l.Heal = cmp.Or(l.Heal, record.DefaultHeal)
	case l.Period == 0 && l.Window == (weir.Window{}) && !l.Balance:
		l.Period = time.Minute
	}
	return l, good && isMap && has && r.setCapacity(k, path, &l, capacity)
}

// setCapacity completes a limit with its capacity, which it must use.
func (r *Reader) setCapacity(k *yaml.Node, path string, l *weir.Limit, capacity int64) bool {
	if capacity > 0 && l.Burst > 0 && l.Amount > 0 && l.Amount != capacity {
		r.Bad(k, path, fmt.Sprintf("write capacity: %d and burst: %d, without refill_amount", l.Amount, l.Burst),
			"capacity %d has no effect beside burst and refill_amount", capacity)
		return false
	}
	l.Amount, l.Burst = cmp.Or(l.Amount, capacity), cmp.Or(l.Burst, capacity)
	return true
}

// enforce reads which entities a limit refuses.
func (r *Reader) enforce(n *yaml.Node, path string) (e weir.Enforce, ok bool) {
	text, tag, ok := r.Scalar(n, path, "text")
	if !ok {
		return e, false
	}
	if tag == "!!str" {
		if e, err := weir.ParseEnforce(text); err == nil {
			return e, true
		}
	}
	r.unknown(n, path, text, tag, "on", "shadow", "1% to 99%")
	return 0, false
}

// former reads the rate for the entities outside a percentage.
func (r *Reader) former(n *yaml.Node, path string) (weir.Rate, bool) {
	text, tag, ok := r.Scalar(n, path, "text")
	if !ok {
		return weir.Rate{}, false
	}
	switch {
	case tag != "!!str":
		r.Not(n, path, formerHint, "a rate in its text form")
		return weir.Rate{}, false
	case text == Balance:
		r.Bad(r.Follow(n), path, formerHint, "%s is not a rate", text)
		return weir.Rate{}, false
	}
	l, ok := r.parse(n, path, "x:"+text, formerHint)
	return l.Rate(), ok
}

// returns reads whether a limit is strict about what is given back.
func (r *Reader) returns(n *yaml.Node, path string) (strict, ok bool) {
	text, tag, ok := r.Scalar(n, path, "text")
	if !ok {
		return false, false
	}
	if tag == "!!str" && (text == returnsFull || text == returnsStrict) {
		return text == returnsStrict, true
	}
	r.unknown(n, path, text, tag, returnsFull, returnsStrict)
	return false, false
}

// unknown reports a text that is none of those allowed.
func (r *Reader) unknown(n *yaml.Node, path, text, tag string, allowed ...string) {
	hint := Allowed(text, allowed)
	if tag == "!!null" {
		r.Not(n, path, hint, "text")
	} else {
		r.Bad(r.Follow(n), path, hint, "%s is unknown", Quote(text))
	}
}

// anyScope is a scope in which all kinds of limits are allowed.
var anyScope = admin.Scope{Resource: weir.TotalResource}
