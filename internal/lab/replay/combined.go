package replay

import (
	"bytes"
	"errors"
	"slices"
)

// The fields of a line in Apache's common and combined formats, which nginx writes too, optionally with the virtual
// host in front.
const (
	client = iota
	user
	host
	method
	path
	protocol
	status
	size
	referer
	agent
	numFields
)

var fieldNames = []string{"client", "user", "host", "method", "path", "protocol", "status", "bytes", "referer", "agent"}

// fieldOf returns the index of a field by name, or -1.
func fieldOf(name string) int { return slices.Index(fieldNames, name) }

// combined is a parsed line. Missing fields are nil.
type combined struct {
	stamp  []byte
	fields [numFields][]byte
}

var (
	errNoStamp   = errors.New("has no [time]")
	errNoClient  = errors.New("has no client, identity and user before the time")
	errNoRequest = errors.New(`has no "request" after the time`)
	errNoStatus  = errors.New("has no status of three digits after the request")
)

// parse parses one line; its slices point into it.
//
//	[HOST:PORT ]CLIENT IDENT USER [TIME] "METHOD PATH PROTOCOL" STATUS BYTES[ "REFERER" "AGENT"[ …]]
func (c *combined) parse(line []byte) error {
	*c = combined{}
	head, rest, ok := bytes.Cut(line, []byte(" ["))
	if !ok {
		return errNoStamp
	}
	if c.stamp, rest, ok = bytes.Cut(rest, []byte("]")); !ok {
		return errNoStamp
	}
	if !c.parseHead(head) {
		return errNoClient
	}
	request, rest, ok := quoted(rest)
	if !ok {
		return errNoRequest
	}
	c.parseRequest(request)
	c.fields[status], rest = word(rest)
	if len(c.fields[status]) != 3 || !digits(c.fields[status]) {
		return errNoStatus
	}
	c.fields[size], rest = word(rest)
	if c.fields[referer], rest, ok = quoted(rest); ok {
		c.fields[agent], _, _ = quoted(rest)
	}
	return nil
}

func (c *combined) parseHead(head []byte) bool {
	first, rest, _ := bytes.Cut(head, []byte(" "))
	second, last, ok := bytes.Cut(rest, []byte(" "))
	if !ok || len(first) == 0 || len(last) == 0 {
		return false
	}
	c.fields[client], c.fields[user] = first, last
	// The identity is "-" in any log of this century. If it comes third, the virtual host comes first.
	if name, ok := bytes.CutPrefix(last, []byte("- ")); ok && string(second) != "-" {
		if i := bytes.LastIndexByte(first, ':'); i > 0 {
			first = first[:i]
		}
		c.fields[host], c.fields[client], c.fields[user] = first, second, name
	}
	return true
}

// parseRequest splits the request line. Clients can send anything there, so it is never malformed.
func (c *combined) parseRequest(request []byte) {
	verb, rest, ok := bytes.Cut(request, []byte(" "))
	if !ok {
		c.fields[path] = request
		return
	}
	c.fields[method], c.fields[path] = verb, rest
	if i := bytes.LastIndexByte(rest, ' '); i >= 0 {
		c.fields[path], c.fields[protocol] = rest[:i], rest[i+1:]
	}
	if i := bytes.IndexByte(c.fields[path], '?'); i >= 0 {
		c.fields[path] = c.fields[path][:i]
	}
}

// quoted parses a double-quoted string with backslash escapes, and returns what follows it.
func quoted(b []byte) (text, rest []byte, ok bool) {
	b = bytes.TrimLeft(b, " ")
	if len(b) == 0 || b[0] != '"' {
		return nil, b, false
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return b[1:i], b[i+1:], true
		}
	}
	return nil, b, false
}

func word(b []byte) (first, rest []byte) {
	first, rest, _ = bytes.Cut(bytes.TrimLeft(b, " "), []byte(" "))
	return first, rest
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
