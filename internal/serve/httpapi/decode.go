package httpapi

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Bodies are decoded more strictly than encoding/json does: unknown members, duplicate members, members that differ in
// case, nulls, fractions in place of whole numbers and invalid UTF-8 are errors that name the field. A misspelt member
// must not be mistaken for one that the client left out.

// member is a member of an object, and a pointer to the value that it goes into.
type member struct {
	name string
	to   any
}

// members are all members that an object may have.
type members []member

var decodeOptions = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(unmarshalLimit),
		json.UnmarshalFromFunc(unmarshalUnavailable),
		json.UnmarshalFromFunc(unmarshalThresholds),
	)),
)

// unmarshal reads an object.
func unmarshal(data []byte, into members) error {
	err := json.Unmarshal(data, &into, decodeOptions)
	if err == nil && bytes.Contains(data, []byte("null")) {
		err = noNull(data)
	}
	return fieldError(err)
}

// noNull refuses null, which would otherwise leave a member as it is.
func noNull(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		switch tok, err := dec.ReadToken(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case tok.Kind() == 'n':
			return badField(fieldOf(dec.StackPointer()), "must not be null: leave it out")
		}
	}
}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (ms *members) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '{' {
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
		return badField("body", "must be an object")
	}
	_, _ = dec.ReadToken()
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		to, err := ms.find(name.String())
		if err != nil {
			return err
		}
		if err := json.UnmarshalDecode(dec, to); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

func (ms *members) find(name string) (to any, err error) {
	for _, m := range *ms {
		if m.name == name {
			return m.to, nil
		}
	}
	if len(*ms) == 0 {
		return nil, badField("body", "must be empty")
	}
	known := make([]string, len(*ms))
	for i, m := range *ms {
		known[i] = m.name
	}
	return nil, badField(within("body", []byte(name)), "is unknown; known are %s", strings.Join(known, ", "))
}

// unmarshalLimit reads a limit as an object or in text form.
func unmarshalLimit(dec *jsontext.Decoder, l *weir.Limit) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	at := fieldOf(dec.StackPointer())
	switch value.Kind() {
	case '"':
	case '{':
		if err := checkLimit(value, at); err != nil {
			return err
		}
	default:
		return badField(at, `must be a limit: {"name":"rpm","amount":100,"period":"min"} or "rpm:100/min"`)
	}
	if err := l.UnmarshalJSON(value); err != nil {
		return badField(at, "%s", err)
	}
	if bad := (*weir.ConfigError)(nil); errors.As(l.Validate(), &bad) {
		field, ok := strings.CutPrefix(bad.Field, "limit "+l.Name+": ")
		if !ok {
			field = "name"
		}
		return badField(at+"."+field, "%s", bad.Reason)
	}
	return nil
}

// checkLimit checks the names and types of a limit's members. [weir.Limit] then decodes the values.
func checkLimit(value jsontext.Value, at string) error {
	var l struct {
		Name    *string `json:"name"`
		Amount  *int64  `json:"amount"`
		Period  *string `json:"period"`
		Burst   *int64  `json:"burst"`
		Enforce *string `json:"enforce"`
		MaxDebt *int64  `json:"max_debt"`
		Returns *string `json:"returns"`
		Slots   *int64  `json:"slots"`
		Heal    *string `json:"heal"`
	}
	if err := fieldError(json.Unmarshal(value, &l, json.RejectUnknownMembers(true))); err != nil {
		if bad, ok := errors.AsType[*weir.ConfigError](err); ok {
			bad.Field = at + "." + bad.Field
		}
		return err
	}
	switch {
	case l.Name != nil && (l.Slots != nil || l.Heal != nil): // Validate checks the rest
	case l.Name == nil || l.Period == nil || l.Amount == nil && *l.Period != "balance":
		return badField(at, "needs a name, and an amount and a period, or slots")
	case l.Amount != nil && *l.Amount < 1:
		return badField(at+".amount", "must be at least 1")
	case l.Burst != nil && *l.Burst < 1:
		return badField(at+".burst", "must be at least 1")
	case l.MaxDebt != nil && *l.MaxDebt < 1:
		return badField(at+".max_debt", "must be at least 1")
	case l.Returns != nil && *l.Returns != "full" && *l.Returns != "strict":
		return badField(at+".returns", "must be full or strict")
	case l.Enforce != nil:
		if _, err := weir.ParseEnforce(*l.Enforce); err != nil {
			if bad, ok := errors.AsType[*weir.ConfigError](err); ok {
				bad.Field = at + ".enforce"
			}
			return err
		}
	}
	return nil
}

// unmarshalUnavailable reads what to do while the store does not answer, or "default".
func unmarshalUnavailable(dec *jsontext.Decoder, u *weir.OnUnavailable) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	at, text := fieldOf(dec.StackPointer()), strings.Trim(string(value), `"`)
	if text == "default" {
		*u = weir.OnUnavailableDefault
		return nil
	}
	*u, err = unavailableOf(at, text)
	return err
}

func unavailableOf(field, text string) (weir.OnUnavailable, error) {
	switch u := weir.OnUnavailable(text); u {
	case weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableLocal:
		return u, nil
	default:
	}
	return "", badField(field, "must be deny, allow or local")
}

// unmarshalThresholds reads an array of percentages, or "default". Values out of range are refused later.
func unmarshalThresholds(dec *jsontext.Decoder, t *admin.Thresholds) error {
	if dec.PeekKind() == '"' {
		value, err := dec.ReadValue()
		if err == nil && string(value) != `"default"` {
			err = badField(fieldOf(dec.StackPointer()), `must be an array of percentages, or "default"`)
		}
		*t = nil
		return err
	}
	percentages := []int{}
	err := json.UnmarshalDecode(dec, &percentages)
	*t = percentages
	return err
}

func badField(field, format string, args ...any) error {
	return &weir.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// fieldError turns an error of the decoder into one that names the field.
func fieldError(err error) error {
	if err == nil { // before the targets, which are allocated
		return nil
	}
	var (
		config *weir.ConfigError
		syntax *jsontext.SyntacticError
		value  *json.SemanticError
	)
	switch {
	case errors.As(err, &config):
		return config
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		return badField(fieldOf(syntax.JSONPointer), "is a duplicate")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badField("body", "ends early")
	case errors.As(err, &syntax):
		return badField(fieldOf(syntax.JSONPointer), "is not valid: %s, at byte %d", syntax.Err, syntax.ByteOffset)
	case errors.Is(err, json.ErrUnknownName) && errors.As(err, &value):
		return badField(fieldOf(value.JSONPointer), "is unknown")
	case errors.Is(err, strconv.ErrRange) && errors.As(err, &value):
		return badField(fieldOf(value.JSONPointer), "is too large or too small")
	case errors.As(err, &value) && isText(value.GoType) && value.JSONKind == '"':
		return badField(fieldOf(value.JSONPointer), "%v", value.Err)
	case errors.As(err, &value):
		return badField(fieldOf(value.JSONPointer), "must be %s", expected(value.GoType))
	}
	return err
}

// isText reports whether the values of a type are parsed texts.
func isText(t reflect.Type) bool {
	return t != nil && reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// expected describes the values of a type.
func expected(t reflect.Type) string {
	if t == nil {
		return "another value"
	}
	switch kind := t.Kind(); {
	case kind == reflect.String || isText(t):
		return "a string"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.Slice:
		return "an array"
	case kind == reflect.Map || kind == reflect.Struct:
		return "an object"
	default:
		return "a whole number, without fraction or exponent"
	}
}

// fieldOf returns the name of a field, such as tokens.tpm or limits[0].amount.
func fieldOf(pointer jsontext.Pointer) string {
	field, last := "body", ""
	for token := range pointer.Tokens() {
		if _, err := strconv.Atoi(token); err == nil && (last == "limits" || last == "requests") {
			field += "[" + token + "]"
		} else {
			field = within(field, []byte(token))
		}
		last = token
	}
	return field
}

// within returns the name of a member of a field. It quotes and shortens arbitrary keys.
func within(field string, key []byte) string {
	name := string(key[:min(len(key), 64)])
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || name == "" {
		name = quoted
	}
	if len(key) > 64 {
		name += "…"
	}
	if field == "body" {
		return name
	}
	return field + "." + name
}
