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

// object is a line of JSON with unparsed values.
type object map[string]json.RawMessage

// parse parses a line. It can be called again for the next one.
func (o object) parse(line []byte) error {
	clear(o)
	var syntax *json.SyntaxError
	switch err := json.Unmarshal(line, &o); {
	case errors.As(err, &syntax):
		return fmt.Errorf("is not JSON: %w at byte %d", err, syntax.Offset)
	case err != nil:
		return errors.New("is not a JSON object")
	}
	return nil
}

// get returns the text of a field: a string without its quotes, or a number or boolean as written. The name is a key,
// a path of keys separated by dots, or one with aliases.
func (o object) get(name string) ([]byte, error) {
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

func (o object) find(name string) json.RawMessage {
	if raw, ok := o[name]; ok {
		return raw
	}
	first, rest, ok := strings.Cut(name, ".")
	inner := make(object)
	if !ok || inner.parse(o[first]) != nil {
		return nil
	}
	return inner.find(rest)
}
