package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"

	"github.com/weirlimits/weir/internal/serve/decide"
)

// maxBody is the maximum size of a request's body in bytes, smallBody what a buffer that is reused has at most.
const maxBody, smallBody = 1 << 20, 4 << 10

// buffers hold a request's body and then its response. Large buffers are not reused: a slow sender would hold one.
var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, 2048)} }}

type buffer struct{ b []byte }

func (b *buffer) free() {
	if cap(b.b) <= smallBody {
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
	if r.ContentLength > smallBody { // it is held already
		b.b = make([]byte, 0, r.ContentLength+1)
	}
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

// decode reads a request's body as an object with the given members, all of them optional.
func decode(r *http.Request, members ...member) error {
	buf := buffers.Get().(*buffer)
	defer buf.free()
	data, err := buf.read(r)
	if err != nil {
		return err
	}
	return unmarshal(data, members)
}

// noBody refuses a non-empty body for requests that take none.
func noBody(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	return decode(r)
}
