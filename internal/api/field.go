package api

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir"
)

// Field is a member of a request. Its tags describe it once for bodies, parameters, flags and arguments:
//
//	json    its name
//	in      where HTTP carries it: path, query or header; by default the body
//	flag    the letter of its flag, or "-" if it has none
//	arg     its name as an argument, if it is no flag
//	doc     what it is; a word in braces names its value
//	required  set if its flag must be given
//	values  what it may be, separated by commas
//	range   the least and the most of a number, such as 1..1000; either may be missing
//	default the value of a flag that is not given
type Field struct {
	Name, In, Flag, Arg, Doc, Default string

	Required bool // as a flag

	index       []int
	values      []string
	least, most int64
}

var fields sync.Map // reflect.Type → []Field

// FieldsOf returns the members of a struct, those of embedded structs included.
func FieldsOf(t reflect.Type) []Field {
	if all, ok := fields.Load(t); ok {
		return all.([]Field) //nolint:forcetypeassert // of no other type
	}
	var all []Field
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" || name == "-" {
			continue
		}
		field := Field{
			Name: name, In: f.Tag.Get("in"), Flag: f.Tag.Get("flag"), Arg: f.Tag.Get("arg"), Doc: f.Tag.Get("doc"),
			Default:  f.Tag.Get("default"),
			Required: f.Tag.Get("required") != "", index: f.Index, least: math.MinInt64, most: math.MaxInt64,
		}
		if values := f.Tag.Get("values"); values != "" {
			field.values = strings.Split(values, ",")
		}
		if least, most, ok := strings.Cut(f.Tag.Get("range"), ".."); ok {
			field.least, _ = strconv.ParseInt(least, 10, 64)
			if most != "" {
				field.most, _ = strconv.ParseInt(most, 10, 64)
			}
		}
		all = append(all, field)
	}
	fields.Store(t, all)
	return all
}

// Ptr returns a pointer to the field in a request, which is a pointer to a struct.
func (f *Field) Ptr(req any) any {
	return reflect.ValueOf(req).Elem().FieldByIndex(f.index).Addr().Interface()
}

// IsZero reports whether the field has its zero value.
func (f *Field) IsZero(req any) bool { return reflect.ValueOf(f.Ptr(req)).Elem().IsZero() }

// Many reports whether the field takes several texts.
func (f *Field) Many(req any) bool {
	switch f.Ptr(req).(type) {
	case *map[string]string, *[]weir.Limit, *[]string, *weir.Tokens:
		return true
	}
	return false
}

// bad returns an error about the field.
func (f *Field) bad(format string, args ...any) error {
	return &weir.ConfigError{Field: f.Name, Reason: fmt.Sprintf(format, args...)}
}

// Set parses a text into the field. To a map or a list it adds one element.
func (f *Field) Set(req any, text string) error {
	if f.values != nil && !slices.Contains(f.values, text) {
		return f.bad("must be %s: %q", alternatives(f.values), text)
	}
	return f.set(f.Ptr(req), text)
}

// set parses a text into what to points to.
func (f *Field) set(to any, text string) error {
	switch p := to.(type) {
	case *bool:
		if text != "true" && text != "false" {
			return f.bad("must be true or false")
		}
		*p = text == "true"
	case *int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < f.least || n > f.most {
			switch {
			case f.most < math.MaxInt64:
				return f.bad("must be a number between %d and %d", f.least, f.most)
			case f.least > math.MinInt64:
				return f.bad("%q must be a number from %d", text, f.least)
			}
			return f.bad("%q must be a number", text)
		}
		*p = int(n)
	case *time.Time:
		t, err := ParseTime(f.Name, text)
		*p = t
		return err
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return f.bad("%q is not a duration such as 30s", text)
		}
		*p = d
	case *weir.Tokens:
		return f.setTokens(p, text)
	case *[]weir.Limit:
		l, err := weir.ParseLimit(text)
		if err != nil {
			return err
		}
		*p = append(*p, l)
	case *map[string]string:
		return f.setPair(p, text)
	case *weir.Thresholds:
		t, err := weir.ParseThresholds(text)
		*p = t
		return err
	case **weir.OnUnavailable:
		u := weir.OnUnavailable(text)
		if text == "default" {
			u = weir.OnUnavailableDefault
		}
		*p = &u
	case *[]string:
		*p = append(*p, text)
	default:
		v := reflect.ValueOf(p).Elem()
		if v.Kind() == reflect.Pointer {
			v.Set(reflect.New(v.Type().Elem()))
			return f.set(v.Interface(), text)
		}
		v.SetString(text)
	}
	return nil
}

func (f *Field) setPair(to *map[string]string, text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return f.bad("%q is not KEY=VALUE", text)
	}
	if *to == nil {
		*to = make(map[string]string)
	}
	(*to)[key] = value
	return nil
}

// setTokens adds an amount such as rpm=1.
func (f *Field) setTokens(to *weir.Tokens, text string) error {
	name, amount, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return f.bad("%q is not LIMIT=AMOUNT, such as rpm=1", text)
	}
	n, err := strconv.ParseInt(amount, 10, 64)
	if err != nil || n < 0 {
		return f.bad("%q is not a whole number of tokens, 0 or more", text)
	}
	if _, twice := (*to)[name]; twice {
		return f.bad("%s is given twice", name)
	}
	if *to == nil {
		*to = make(weir.Tokens)
	}
	(*to)[name] = n
	return nil
}

// ParseTime parses a time in UTC, as precise as it is given. The name is that of the parameter, for the error.
func ParseTime(name, text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15", time.DateOnly, "2006-01"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, &weir.ConfigError{
		Field:  name,
		Reason: fmt.Sprintf("%q is not a time such as 2026-11-21, 2026-11-21T13 or 2026-11-21T13:00:00Z", text),
	}
}

// alternatives writes a list as "a, b or c".
func alternatives(values []string) string {
	last := len(values) - 1
	if last < 1 {
		return strings.Join(values, "")
	}
	return strings.Join(values[:last], ", ") + " or " + values[last]
}
