package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// maxBody is the maximum size of a request's body in bytes.
const maxBody = 1 << 20

// buffers hold a request's body and then its response. Large buffers are not reused.
var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, 2048)} }}

type buffer struct{ b []byte }

func (b *buffer) free() {
	if cap(b.b) <= 64<<10 {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}

// read reads the body of a request, which must be JSON. Once the body is decoded, the response can reuse the buffer.
func (b *buffer) read(r *http.Request) ([]byte, error) {
	if err := checkMedia(r.Header); err != nil {
		return nil, err
	}
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	b.b = b.b[:0]
	for {
		if len(b.b) == cap(b.b) {
			b.b = append(b.b, 0)[:len(b.b)]
		}
		n, err := r.Body.Read(b.b[len(b.b):cap(b.b)])
		b.b = b.b[:len(b.b)+n]
		switch {
		case len(b.b) > maxBody:
			return nil, errTooLarge
		case err == io.EOF:
			return b.b, nil
		case err != nil:
			return nil, cutOff(err)
		}
	}
}

// cutOff returns the error for a body that could not be read.
func cutOff(err error) error {
	if errors.Is(err, decide.ErrOverloaded) {
		return decide.ErrOverloaded
	}
	return badField("body", "ends early")
}

// checkMedia requires the JSON media type. A web page can send other types, or none, to any address without a CORS
// preflight.
func checkMedia(h http.Header) error {
	t := h.Get("Content-Type")
	switch t {
	case "application/json", "application/json; charset=utf-8":
		return nil
	case "":
		return &httpError{kind: kindMedia, detail: "the request has no Content-Type: send application/json"}
	}
	switch base, _, err := mime.ParseMediaType(t); {
	case err == nil && (base == "application/json" || base == "application/merge-patch+json"):
		return nil
	default:
		return &httpError{kind: kindMedia, detail: "the body must be application/json"}
	}
}

// decode reads a request's body as an object that may have only the given members.
func decode(r *http.Request, names []string, member func(s *scanner, name string) error) error {
	buf := buffers.Get().(*buffer)
	defer buf.free()
	data, err := buf.read(r)
	if err != nil {
		return err
	}
	s := &scanner{data: data}
	return s.document(func() error {
		return s.object("body", names, func(name string) error { return member(s, name) })
	})
}

// tokens reads {"rpm":1,"tpm":500}.
func (s *scanner) tokens(field string) (weir.Tokens, error) {
	t := make(weir.Tokens, 4)
	err := s.members(field, func(key []byte) error {
		if _, twice := t[string(key)]; twice {
			return badField(within(field, key), "is a duplicate")
		}
		name := string(key)
		n, err := s.integer(field)
		if err != nil {
			return refield(err, within(field, []byte(name)))
		}
		t[name] = n
		return nil
	})
	return t, err
}

// refield replaces the field of a scanner's error. Callers use it to avoid building field names unless there is an error.
func refield(err error, field string) error {
	if bad, ok := err.(*weir.ConfigError); ok { //nolint:errorlint // from the scanner, never wrapped
		bad.Field = field
	}
	return err
}

var limitFields = []string{"name", "amount", "period", "burst", "enforce"}

// limits reads an array of limits, each as an object or in text form.
func (s *scanner) limits(field string) ([]weir.Limit, error) {
	ls := []weir.Limit{}
	err := s.list(field, func(i int) error {
		at := field + "[" + strconv.Itoa(i) + "]"
		c := s.peek()
		start := s.pos
		var err error
		switch c {
		case '"':
			_, err = s.bytes(at)
		case '{':
			err = s.limitObject(at)
		default:
			err = s.want(at, `a limit: {"name":"rpm","amount":100,"period":"min"} or "rpm:100/min"`)
		}
		if err != nil {
			return err
		}
		var l weir.Limit
		if err := l.UnmarshalJSON(s.data[start:s.pos]); err != nil {
			return badField(at, "%s", err)
		}
		ls = append(ls, l)
		return nil
	})
	return ls, err
}

// limitObject checks the names and types of a limit's members. [weir.Limit] then decodes the values.
func (s *scanner) limitObject(at string) error {
	given := 0
	err := s.object(at, limitFields, func(name string) (err error) {
		switch name {
		case "name", "period":
			_, err = s.bytes(at + "." + name)
		case "enforce":
			var text string
			if text, err = s.text(at + "." + name); err == nil {
				if _, bad := weir.ParseEnforce(text); bad != nil {
					err = refield(bad, at+"."+name)
				}
			}
		default:
			var n int64
			if n, err = s.integer(at + "." + name); err == nil && n < 1 {
				err = badField(at+"."+name, "must be at least 1")
			}
		}
		if name != "burst" && name != "enforce" {
			given++
		}
		return err
	})
	if err == nil && given < 3 {
		err = badField(at, "needs a name, an amount and a period")
	}
	return err
}

// unavailable reads the answer for when the store does not answer.
func (s *scanner) unavailable(field string) (weir.Unavailable, error) {
	t, err := s.text(field)
	switch u := weir.Unavailable(t); {
	case err != nil:
		return "", err
	case u == weir.Deny, u == weir.Allow, u == weir.Local:
		return u, nil
	}
	return "", badField(field, "must be deny, allow or local")
}

// unavailableOrDefault is unavailable, but also accepts "default".
func (s *scanner) unavailableOrDefault(field string) (weir.Unavailable, error) {
	const unset = `"default"`
	if s.peek() == '"' && strings.HasPrefix(string(s.data[s.pos:min(len(s.data), s.pos+len(unset))]), unset) {
		_, err := s.text(field)
		return weir.UnavailableDefault, err
	}
	return s.unavailable(field)
}

// duration reads a duration such as "1.5s".
func (s *scanner) duration(field string, most time.Duration) (time.Duration, error) {
	t, err := s.text(field)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(t)
	switch {
	case err != nil:
		return 0, badField(field, `is not a duration such as "500ms" or "2s"`)
	case d < 0 || d > most:
		return 0, badField(field, "must be between 0s and %s", most)
	}
	return d, nil
}

// metadata reads {"plan":"pro"}.
func (s *scanner) metadata(field string) (map[string]string, error) {
	m := make(map[string]string)
	err := s.members(field, func(key []byte) error {
		name := string(key)
		if _, twice := m[name]; twice {
			return badField(within(field, key), "is a duplicate")
		}
		v, err := s.text(field)
		if err != nil {
			return refield(err, within(field, []byte(name)))
		}
		m[name] = v
		return nil
	})
	return m, err
}

// noBody refuses a non-empty body for requests that take none.
func noBody(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	return decode(r, nil, nil)
}
