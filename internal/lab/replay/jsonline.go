package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// aliases are other names under which JSON logs store the fields of a combined log and their time.
var aliases = map[string][]string{
	"client":   {"remote_addr", "remote_ip", "client_ip", "clientip", "ip", "request.remote_ip"},
	"user":     {"remote_user", "user_id"},
	"host":     {"http_host", "server_name", "request.host"},
	"method":   {"request_method", "request.method"},
	"path":     {"uri", "request_uri", "url", "request.uri"},
	"protocol": {"server_protocol", "request.proto"},
	"bytes":    {"body_bytes_sent", "bytes_sent", "size"},
	"referer":  {"http_referer"},
	"agent":    {"user_agent", "http_user_agent"},
	"time":     {"ts", "timestamp", "@timestamp"},
}

// object is a line of JSON with unparsed values. It is reused, because a log has millions of lines.
type object struct {
	keys, values [][]byte
}

// parse parses a line; the keys and values point into it.
func (o *object) parse(line []byte) error {
	o.keys, o.values = o.keys[:0], o.values[:0]
	line = bytes.TrimSpace(line)
	if !json.Valid(line) {
		var syntax *json.SyntaxError
		if err := json.Unmarshal(line, new(any)); errors.As(err, &syntax) {
			return fmt.Errorf("is not JSON: %w at byte %d", err, syntax.Offset)
		}
		return errors.New("is not JSON")
	}
	if line[0] != '{' {
		return errors.New("is not a JSON object")
	}
	for i := 1; ; { // the line is valid, so the loops below terminate
		for line[i] != '"' {
			if line[i] == '}' {
				return nil
			}
			i++
		}
		end := valueEnd(line, i)
		o.keys = append(o.keys, line[i+1:end-1])
		for i = end; line[i] == ':' || isSpace(line[i]); i++ {
		}
		end = valueEnd(line, i)
		o.values = append(o.values, line[i:end])
		i = end
	}
}

// valueEnd returns the end of the value that begins at i.
func valueEnd(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			for ; i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && !isSpace(b[i]); i++ {
			}
			return i
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// get returns the text of a field: a string without its quotes, or a number or boolean as written. The name is a key,
// a path of keys separated by dots, or one with aliases.
func (o *object) get(name string) ([]byte, error) {
	raw := o.find(name)
	for _, alias := range aliases[name] {
		if raw != nil {
			break
		}
		raw = o.find(alias)
	}
	switch {
	case raw == nil || string(raw) == "null":
		return nil, fmt.Errorf("has no field %q", name)
	case raw[0] == '"':
		if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
			return inner, nil
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
		return []byte(text), nil
	case raw[0] == '{' || raw[0] == '[':
		return nil, fmt.Errorf("field %q is not a text or number", name)
	}
	return raw, nil
}

func (o *object) find(name string) []byte {
	for i, key := range o.keys {
		if string(key) == name {
			return o.values[i]
		}
	}
	first, rest, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	var inner object
	if raw := o.find(first); len(raw) == 0 || raw[0] != '{' || inner.parse(raw) != nil {
		return nil
	}
	return inner.find(rest)
}
