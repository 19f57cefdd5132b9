package api

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Field is a member of a request. Its tags describe it once for bodies, parameters, flags and arguments:
//
//	json     its name
//	in       where HTTP carries it: path, query, header, or as the whole body; by default a member of the body
//	flag     the name of its flag and, after a comma, its letter; "-" if it has none
//	arg      its name as an argument, if it is no flag
//	required set if its flag must be given
//	values   what it may be, separated by commas
//	range    the least and the most of a number or a duration, such as 1..1000 or 1s..; either may be missing. Tokens
//	         are at least 0 unless it states less
//	default  the value of a flag that is not given
//	about    entity or resource, if the operation concerns only the one that it names; entities, if only those whose
//	         ids begin with it
//
// What it is stands in the text that [Describe] reads.
type Field struct {
	Name, In, Flag, Arg, Doc, Default, About string

	Required bool // as a flag

	index       []int
	values      []string
	least, most string
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
		owner := t
		if n := len(f.Index) - 1; n > 0 {
			owner = t.FieldByIndex(f.Index[:n]).Type
		}
		field := Field{
			Name: name, In: f.Tag.Get("in"), Flag: f.Tag.Get("flag"), Arg: f.Tag.Get("arg"),
			Doc: docs[owner.String()+"."+name], Default: f.Tag.Get("default"),
			About: f.Tag.Get("about"), Required: f.Tag.Get("required") != "", index: f.Index,
		}
		if values := f.Tag.Get("values"); values != "" {
			field.values = strings.Split(values, ",")
		}
		field.least, field.most, _ = strings.Cut(f.Tag.Get("range"), "..")
		all = append(all, field)
	}
	fields.Store(t, all)
	return all
}

// About returns the entity and the resource that a request is about; "" means all of the namespace, and ID* all whose
// ids begin with ID.
func About(req any, fields []Field) (entity, resource string) {
	for i := range fields {
		f := &fields[i]
		if f.About == "" || f.IsZero(req) {
			continue
		}
		switch text := f.Texts(req)[0]; f.About {
		case "entity":
			entity = text
		case "entities":
			entity = text + "*"
		case "resource":
			resource = text
		}
	}
	return entity, resource
}

// Values returns the values that the field may have; nil for any.
func (f *Field) Values() []string { return slices.Clone(f.values) }

// Ptr returns a pointer to the field in a request, which is a pointer to a struct.
func (f *Field) Ptr(req any) any {
	return reflect.ValueOf(req).Elem().FieldByIndex(f.index).Addr().Interface()
}

// IsZero reports whether the field has its zero value.
func (f *Field) IsZero(req any) bool { return reflect.ValueOf(f.Ptr(req)).Elem().IsZero() }

// Texts returns the texts that Set parses into the field's value; none for the zero value.
func (f *Field) Texts(req any) []string {
	if f.IsZero(req) {
		return nil
	}
	v := reflect.ValueOf(f.Ptr(req)).Elem()
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	var texts []string
	switch v := v.Interface().(type) {
	case time.Time:
		return []string{v.Format(time.RFC3339Nano)}
	case []string:
		return v
	case []weir.Limit:
		for _, l := range v {
			texts = append(texts, l.String())
		}
		return texts
	case weir.Tokens:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			texts = append(texts, fmt.Sprintf("%s=%d", name, v[name]))
		}
		return texts
	}
	return []string{fmt.Sprint(v)}
}

// Many reports whether the field takes several texts.
func (f *Field) Many(req any) bool {
	t := reflect.TypeOf(f.Ptr(req)).Elem()
	return t.Kind() == reflect.Map || t.Kind() == reflect.Slice && t != reflect.TypeFor[admin.Thresholds]()
}

// bad returns an error about the field.
func (f *Field) bad(format string, args ...any) error {
	return &weir.ConfigError{Field: f.Name, Reason: fmt.Sprintf(format, args...)}
}

// Set parses a text into the field. To a map or a list it adds one element, which may name several of a list's values.
func (f *Field) Set(req any, text string) error {
	words := []string{text}
	if f.Many(req) {
		words = strings.Split(text, ",")
	}
	for _, word := range words {
		if f.values != nil && !slices.Contains(f.values, word) {
			return f.bad("must be %s: %q", alternatives(f.values), word)
		}
	}
	v := reflect.ValueOf(f.Ptr(req)).Elem()
	for v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if parse, ok := parsers[v.Type()]; ok {
		return parse(f, v.Addr().Interface(), text)
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return f.bad("%v", err)
		}
		return nil
	}
	return f.setKind(v, text)
}

// setKind parses a text, a switch or a number.
func (f *Field) setKind(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.Bool:
		if text != "true" && text != "false" {
			return f.bad("must be true or false")
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		return f.within(float64(n), err, text, "a whole number")
	case reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		v.SetUint(n)
		return f.within(float64(n), err, text, "a number from 0")
	case reflect.Float64:
		n, err := f.float(text)
		v.SetFloat(n)
		if f.share() {
			return f.within(n, err, text, "a share such as 0.05 or 5%")
		}
		return f.within(n, err, text, "a number")
	default:
		v.SetString(text)
	}
	return nil
}

// share reports whether a number is a share.
func (f *Field) share() bool { return f.least == "0" && f.most == "1" }

// float parses a number. A share may be a percentage.
func (f *Field) float(text string) (float64, error) {
	digits, percent := strings.CutSuffix(text, "%")
	if !percent || !f.share() {
		return strconv.ParseFloat(text, 64)
	}
	n, err := strconv.ParseFloat(digits, 64)
	return n / 100, err
}

// within returns an error if a number, or a duration in nanoseconds, could not be parsed or is out of range.
func (f *Field) within(n float64, parsed error, text, what string) error {
	least, most := bound(f.least, math.Inf(-1)), bound(f.most, math.Inf(1))
	switch {
	case parsed == nil && n >= least && n <= most:
		return nil
	case errors.Is(parsed, strconv.ErrRange):
		return f.bad("is too large or too small: %q", text)
	case parsed != nil || f.least+f.most == "":
		return f.bad("must be %s: %q", what, text)
	case f.most == "":
		return f.bad("must be at least %s: %q", f.least, text)
	}
	return f.bad("must be between %s and %s: %q", f.least, f.most, text)
}

// bound parses an end of a range: a number, or a duration.
func bound(text string, none float64) float64 {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d)
	}
	return none
}

// parsers parse the types that are more than a text, a switch or a number.
var parsers = map[reflect.Type]func(f *Field, to any, text string) error{
	reflect.TypeFor[time.Time](): parser(func(f *Field, to *time.Time, text string) (err error) {
		*to, err = ParseTime(f.Name, text)
		return err
	}),
	reflect.TypeFor[time.Duration](): parser(func(f *Field, to *time.Duration, text string) (err error) {
		*to, err = time.ParseDuration(text)
		return f.within(float64(*to), err, text, "a duration such as 30s or 72h")
	}),
	reflect.TypeFor[weir.Limit](): parser(func(_ *Field, to *weir.Limit, text string) (err error) {
		*to, err = weir.ParseLimit(text)
		return err
	}),
	reflect.TypeFor[[]weir.Limit](): parser(func(_ *Field, to *[]weir.Limit, text string) error {
		if several(text) {
			return &weir.ConfigError{
				Field: "limit " + strconv.Quote(text), Reason: "is several limits in one: give each on its own",
			}
		}
		l, err := weir.ParseLimit(text)
		*to = append(*to, l)
		return err
	}),
	reflect.TypeFor[[]string](): parser(func(_ *Field, to *[]string, text string) error {
		*to = append(*to, text)
		return nil
	}),
	reflect.TypeFor[admin.Thresholds](): parser(func(_ *Field, to *admin.Thresholds, text string) (err error) {
		*to, err = admin.ParseThresholds(text)
		return err
	}),
	reflect.TypeFor[weir.OnUnavailable](): parser(func(_ *Field, to *weir.OnUnavailable, text string) error {
		if *to = weir.OnUnavailable(text); text == "default" {
			*to = weir.OnUnavailableDefault
		}
		return nil
	}),
	reflect.TypeFor[weir.Tokens]():       parser((*Field).setTokens),
	reflect.TypeFor[map[string]string](): parser((*Field).setPair),
}

func parser[T any](parse func(f *Field, to *T, text string) error) func(*Field, any, string) error {
	return func(f *Field, to any, text string) error {
		return parse(f, to.(*T), text) //nolint:forcetypeassert // parsers are listed by their type
	}
}

func (f *Field) setPair(to *map[string]string, text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		form := "KEY=VALUE"
		if _, rest, found := strings.Cut(f.Doc, "{"); found {
			form, _, _ = strings.Cut(rest, "}")
		}
		return f.bad("%q is not %s", text, form)
	}
	if *to == nil {
		*to = make(map[string]string)
	}
	if _, twice := (*to)[key]; twice {
		return f.bad("%s is given twice", key)
	}
	(*to)[key] = value
	return nil
}

// several reports whether a text is limits that are separated by commas: as one limit, it would have a strange name.
func several(text string) bool {
	parts := strings.Split(text, ",")
	return len(parts) > 1 && !slices.ContainsFunc(parts, func(part string) bool {
		_, err := weir.ParseLimit(strings.TrimSpace(part))
		return err != nil
	})
}

// likeTokens returns an amount that is near to a text that is none: rpm=5 for rpm:5.
func likeTokens(text string) string {
	name, amount, _ := strings.Cut(text, ":")
	if name = strings.Trim(name, "="); name == "" || strings.ContainsRune("-0123456789", rune(name[0])) {
		name, amount = "rpm", name
	}
	if _, err := strconv.ParseInt(amount, 10, 64); err != nil {
		amount = "1"
	}
	return name + "=" + amount
}

// setTokens adds an amount such as rpm=1.
func (f *Field) setTokens(to *weir.Tokens, text string) error {
	name, amount, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return f.bad("must be written as %s: %q", likeTokens(text), text)
	}
	n, err := strconv.ParseInt(amount, 10, 64)
	if least := bound(f.least, 0); err != nil || float64(n) < least {
		reason := fmt.Sprintf("%q is not a whole number of tokens", text)
		if least == 0 {
			reason += ", 0 or more"
		}
		return &weir.ConfigError{Field: f.Name + "." + name, Reason: reason}
	}
	if _, twice := (*to)[name]; twice {
		return &weir.ConfigError{Field: f.Name + "." + name, Reason: name + " is given twice"}
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
