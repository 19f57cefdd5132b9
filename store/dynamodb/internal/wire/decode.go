package wire

import (
	"bytes"
	"encoding/base64"
	"hash/crc32"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
)

// intact reports whether an answer matches its checksum, if it has one.
func (a *answer) intact() bool {
	if a.sum == nil {
		return true
	}
	want, err := strconv.ParseUint(string(a.sum), 10, 32)
	return err == nil && want == uint64(crc32.ChecksumIEEE(a.body))
}

// parser reads JSON as far as the answers to a bucket's write need it. It accepts less than all of JSON, and nothing that
// is not JSON. What it does not accept is left to the SDK.
type parser struct {
	b  []byte
	i  int
	ns []types.AttributeValueMemberN
}

// parseAnswer reads the answer to a write that was applied.
func parseAnswer(body []byte) (out *dynamodb.UpdateItemOutput, meta *middleware.Metadata, ok bool) {
	p, out := &parser{b: body}, &dynamodb.UpdateItemOutput{}
	ok = p.object(func(name []byte) bool {
		if string(name) != "Attributes" || out.Attributes != nil {
			return false
		}
		out.Attributes = p.attributes()
		return out.Attributes != nil
	}) && p.end()
	return out, &out.ResultMetadata, ok
}

// parseItems reads the answer to a BatchGetItem that left nothing unprocessed.
func parseItems(body []byte) (out *dynamodb.BatchGetItemOutput, meta *middleware.Metadata, ok bool) {
	p, out := &parser{b: body}, &dynamodb.BatchGetItemOutput{}
	ok = p.object(func(name []byte) bool {
		switch {
		case string(name) == "Responses" && out.Responses == nil:
			out.Responses = map[string][]map[string]types.AttributeValue{}
			return p.object(func(raw []byte) bool {
				name := string(raw)
				_, twice := out.Responses[name]
				out.Responses[name] = p.items()
				return !twice && out.Responses[name] != nil
			})
		case string(name) == "UnprocessedKeys" && out.UnprocessedKeys == nil:
			out.UnprocessedKeys = map[string]types.KeysAndAttributes{}
			return p.eat('{') && p.eat('}')
		}
		return false
	}) && p.end()
	return out, &out.ResultMetadata, ok
}

// parseFailed reads the answer to a write whose condition did not hold.
func parseFailed(body []byte) (err error, ok bool) { //nolint:revive // the error is what is read
	p, e := &parser{b: body}, &types.ConditionalCheckFailedException{}
	named := false
	ok = p.object(func(name []byte) bool {
		switch string(name) {
		case "__type":
			kind, ok := p.text()
			_, after, _ := strings.Cut(kind, "#")
			ok = ok && !named && after == "ConditionalCheckFailedException"
			named = true
			return ok
		case "message":
			text, ok := p.text()
			ok = ok && e.Message == nil && text != ""
			e.Message = &text
			return ok
		case "Item":
			if e.Item != nil {
				return false
			}
			e.Item = p.attributes()
			return e.Item != nil
		}
		return false
	}) && p.end()
	return e, ok && named
}

// items reads a list of items. It returns nil for anything else.
func (p *parser) items() []map[string]types.AttributeValue {
	if !p.eat('[') {
		return nil
	}
	all := make([]map[string]types.AttributeValue, 0, 4)
	if p.eat(']') {
		return all
	}
	for {
		item := p.attributes()
		if item == nil {
			return nil
		}
		all = append(all, item)
		if p.eat(']') {
			return all
		}
		if !p.eat(',') {
			return nil
		}
	}
}

// attributes reads an item that consists of texts, numbers and bytes. It returns nil for anything else.
func (p *parser) attributes() map[string]types.AttributeValue {
	const most = 4 << 10 // a text can hold any number of what is counted
	rest := p.b[p.i:min(len(p.b), p.i+most)]
	if end := bytes.Index(rest, []byte("}}")); end >= 0 { // usually that of the item
		rest = rest[:end]
	}
	m := make(map[string]types.AttributeValue, bytes.Count(rest, []byte(":{")))
	ok := p.object(func(raw []byte) bool {
		name := string(raw)
		if m[name] != nil {
			return false
		}
		return p.object(func(kind []byte) bool {
			if m[name] != nil { // of another type
				return false
			}
			switch string(kind) {
			case "N":
				text, ok := p.text()
				if len(p.ns) == cap(p.ns) {
					p.ns = make([]types.AttributeValueMemberN, 0, 16)
				}
				p.ns = append(p.ns, types.AttributeValueMemberN{Value: text})
				m[name] = &p.ns[len(p.ns)-1]
				return ok
			case "S":
				text, ok := p.text()
				m[name] = &types.AttributeValueMemberS{Value: text}
				return ok
			case "B":
				text, ok := p.text()
				b, err := base64.StdEncoding.DecodeString(text)
				m[name] = &types.AttributeValueMemberB{Value: b}
				return ok && err == nil
			}
			return false
		}) && m[name] != nil
	})
	if !ok {
		return nil
	}
	return m
}

// object reads an object. It calls member with the name of each value, to read that value.
func (p *parser) object(member func(name []byte) bool) bool {
	if !p.eat('{') {
		return false
	}
	if p.eat('}') {
		return true
	}
	for {
		name, escaped, ok := p.quoted()
		if !ok || escaped || !p.eat(':') || !member(name) {
			return false
		}
		if p.eat('}') {
			return true
		}
		if !p.eat(',') {
			return false
		}
	}
}

func (p *parser) text() (string, bool) {
	raw, escaped, ok := p.quoted()
	if !escaped || !ok {
		return string(raw), ok
	}
	b := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			b = append(b, raw[i])
			continue
		}
		i++ // there is another byte: quoted ensures that
		if raw[i] != 'u' {
			at := strings.IndexByte(`"\/bfnrt`, raw[i])
			if at < 0 {
				return "", false
			}
			b = append(b, "\"\\/\b\f\n\r\t"[at])
			continue
		}
		if len(raw) < i+5 {
			return "", false
		}
		c, err := strconv.ParseUint(string(raw[i+1:i+5]), 16, 16)
		if err != nil || utf16.IsSurrogate(rune(c)) { // surrogate pairs are left to the SDK
			return "", false
		}
		b = utf8.AppendRune(b, rune(c))
		i += 4
	}
	return string(b), true
}

// quoted reads a string, and returns what is between its quotes.
func (p *parser) quoted() (raw []byte, escaped, ok bool) {
	if !p.eat('"') {
		return nil, false, false
	}
	start, ascii := p.i, true
	for ; p.i < len(p.b); p.i++ {
		switch c := p.b[p.i]; {
		case c == '"':
			raw = p.b[start:p.i]
			p.i++
			return raw, escaped, ascii || utf8.Valid(raw)
		case c == '\\':
			escaped = true
			p.i++
		case c < ' ':
			return nil, false, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false, false
}

// eat consumes a character, after white space, if it comes next.
func (p *parser) eat(c byte) bool {
	p.space()
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *parser) end() bool {
	p.space()
	return p.i == len(p.b)
}

func (p *parser) space() {
	for p.i < len(p.b) && (p.b[p.i] == ' ' || p.b[p.i] == '\n' || p.b[p.i] == '\r' || p.b[p.i] == '\t') {
		p.i++
	}
}
