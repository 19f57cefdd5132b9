package httpapi

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weirlimits/weir"
)

// scanner reads a JSON text more strictly than encoding/json does. It reports unknown members, duplicate members, members
// that differ in case, nulls, fractions in place of whole numbers, and invalid UTF-8 as errors that name the field. A
// misspelt member must not be mistaken for one that the client left out.
type scanner struct {
	data    []byte
	pos     int
	scratch []byte // for strings with escapes
}

func badField(field, format string, args ...any) error {
	return &weir.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// document calls read and checks that it has read the whole text.
func (s *scanner) document(read func() error) error {
	if err := read(); err != nil {
		return err
	}
	if s.peek(); s.pos < len(s.data) {
		return badField("body", "has text after the JSON value, at byte %d", s.pos)
	}
	return nil
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// want returns the error for a value that is not of the expected kind.
func (s *scanner) want(field, what string) error {
	switch c := s.peek(); {
	case s.pos >= len(s.data):
		return badField(field, "must be %s, but the text ends", what)
	case c == 'n' && strings.HasPrefix(string(s.data[s.pos:min(s.pos+4, len(s.data))]), "null"):
		return badField(field, "must be %s, is null: leave it out", what)
	case c >= utf8.RuneSelf || c < ' ':
		return badField(field, "must be %s, byte %d is %#x", what, s.pos, c)
	default:
		return badField(field, "must be %s, byte %d is %q", what, s.pos, c)
	}
}

// members reads an object and calls member before each value. The key is valid until the next string is read.
func (s *scanner) members(field string, member func(key []byte) error) error {
	if s.peek() != '{' {
		return s.want(field, "an object")
	}
	s.pos++
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.want(field, "an object with quoted names")
		}
		key, err := s.bytes(field)
		if err != nil {
			return err
		}
		if s.peek() != ':' {
			return s.want(within(field, key), "followed by a colon")
		}
		s.pos++
		if err := member(key); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.want(field, "an object: a comma or brace belongs here")
		}
	}
}

// object reads an object whose members are all among names, each at most once.
func (s *scanner) object(field string, names []string, member func(name string) error) error {
	var seen uint64
	return s.members(field, func(key []byte) error {
		for i, name := range names {
			if string(key) != name {
				continue
			}
			if seen&(1<<i) != 0 {
				return badField(within(field, key), "is a duplicate")
			}
			seen |= 1 << i
			return member(name)
		}
		if len(names) == 0 {
			return badField(field, "must be empty")
		}
		return badField(within(field, key), "is unknown; known are %s", strings.Join(names, ", "))
	})
}

// list reads an array and calls item before each value.
func (s *scanner) list(field string, item func(i int) error) error {
	if s.peek() != '[' {
		return s.want(field, "an array")
	}
	s.pos++
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := item(i); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.want(field, "an array: a comma or bracket belongs here")
		}
	}
}

// text reads a string.
func (s *scanner) text(field string) (string, error) {
	b, err := s.bytes(field)
	return string(b), err
}

// bytes reads a string. The result is valid until the next string is read.
func (s *scanner) bytes(field string) ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.want(field, "a string")
	}
	s.pos++
	start, ascii := s.pos, true
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			b := s.data[start:s.pos]
			if !ascii && !utf8.Valid(b) {
				return nil, badField(field, "is not valid UTF-8")
			}
			s.pos++
			return b, nil
		case c == '\\':
			return s.escaped(field, start)
		case c < ' ':
			return nil, badField(field, "holds a control character, byte %d is %#x", s.pos, c)
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, badField(field, "has no closing quote")
}

// escaped reads the rest of a string that began at start, from its first backslash on.
func (s *scanner) escaped(field string, start int) ([]byte, error) {
	out := s.scratch[:0]
	out = append(out, s.data[start:s.pos]...)
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		s.pos++
		switch {
		case c == '"':
			s.scratch = out
			if !utf8.Valid(out) {
				return nil, badField(field, "is not valid UTF-8")
			}
			return out, nil
		case c < ' ':
			return nil, badField(field, "holds a control character, byte %d is %#x", s.pos-1, c)
		case c != '\\':
			out = append(out, c)
			continue
		}
		r, ok := s.escape()
		if !ok {
			return nil, badField(field, "has a bad escape before byte %d", s.pos)
		}
		out = utf8.AppendRune(out, r)
	}
	return nil, badField(field, "has no closing quote")
}

// escape reads the escape after a backslash. It returns false for half a surrogate pair.
func (s *scanner) escape() (rune, bool) {
	if s.pos >= len(s.data) {
		return 0, false
	}
	c := s.data[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case 'u':
	default:
		return 0, false
	}
	r, ok := s.hex()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	if s.pos+2 > len(s.data) || s.data[s.pos] != '\\' || s.data[s.pos+1] != 'u' {
		return 0, false
	}
	s.pos += 2
	low, ok := s.hex()
	pair := utf16.DecodeRune(r, low)
	return pair, ok && pair != utf8.RuneError
}

func (s *scanner) hex() (rune, bool) {
	if s.pos+4 > len(s.data) {
		return 0, false
	}
	var r rune
	for _, c := range s.data[s.pos : s.pos+4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	s.pos += 4
	return r, true
}

// integer reads a whole number: no fraction, no exponent.
func (s *scanner) integer(field string) (int64, error) {
	c := s.peek()
	start := s.pos
	if c == '-' {
		s.pos++
	}
	digits := s.pos
	var n uint64 // saturates
	for ; s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9'; s.pos++ {
		if n > math.MaxInt64/10 {
			n = math.MaxUint64
			continue
		}
		n = n*10 + uint64(s.data[s.pos]-'0')
	}
	switch {
	case s.pos == digits:
		s.pos = start
		return 0, s.want(field, "a whole number")
	case s.pos > digits+1 && s.data[digits] == '0':
		return 0, badField(field, "must not begin with a 0")
	case s.pos < len(s.data) && strings.IndexByte(".eE", s.data[s.pos]) >= 0:
		return 0, badField(field, "must be a whole number, without fraction or exponent")
	case c == '-' && n <= math.MaxInt64+1:
		return -int64(n), nil
	case c == '-':
		return 0, badField(field, "is too small")
	case n > math.MaxInt64:
		return 0, badField(field, "is too large")
	}
	return int64(n), nil
}

// boolean reads true or false.
func (s *scanner) boolean(field string) (bool, error) {
	s.peek()
	switch rest := string(s.data[s.pos:min(s.pos+5, len(s.data))]); {
	case strings.HasPrefix(rest, "true"):
		s.pos += 4
		return true, nil
	case rest == "false":
		s.pos += 5
		return false, nil
	}
	return false, s.want(field, "true or false")
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
