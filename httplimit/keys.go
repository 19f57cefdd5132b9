package httplimit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

// KeyFunc returns the entity or the resource of a request: 1 to 256 bytes of printable text. A [*StatusError] sets the
// status of the answer; any other error is answered with 500 and logged.
type KeyFunc func(*http.Request) (string, error)

// Fixed returns a KeyFunc that returns id for all requests.
func Fixed(id string) KeyFunc {
	return func(*http.Request) (string, error) { return id, nil }
}

var errNoPattern = errors.New(
	"the request matched no pattern: wrap the handlers that are registered in a ServeMux, not the mux",
)

// ByPattern returns the pattern of [http.ServeMux] that the request matched, with its method: "POST /v1/orders/{id}".
// The wrapped handler must be registered in the mux. In front of the mux the pattern is not known yet, and requests are
// answered with 500.
func ByPattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", errNoPattern
	}
	return r.Pattern, nil
}

// ByHeader returns a KeyFunc that derives an entity from the secret in a header field by [KeyID], so neither the store
// nor any log contains the secret. A request without the field is [ErrNoKey]. A request that has the field twice is
// answered with 400, because the code that checks the key might use the other value.
//
// ByHeader is not for fields that contain more than the secret, such as Authorization: see [ByBearer].
func ByHeader(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		secret, err := only(r, name)
		if err != nil {
			return "", err
		}
		return answer.SecretID(secret), nil
	}
}

// ByBearer returns a KeyFunc that derives an entity from the token in Authorization: Bearer, like [ByHeader]. Any other
// scheme is [ErrNoKey].
func ByBearer() KeyFunc {
	return func(r *http.Request) (string, error) {
		field, err := only(r, "Authorization")
		if err != nil {
			return "", err
		}
		token, ok := answer.Bearer(field)
		if !ok {
			return "", ErrNoKey
		}
		return answer.SecretID(token), nil
	}
}

// only returns the single value of a field.
func only(r *http.Request, name string) (string, error) {
	switch values := r.Header[name]; {
	case len(values) > 1:
		return "", &StatusError{http.StatusBadRequest, fmt.Sprintf("%s appears %d times", name, len(values))}
	case len(values) == 0 || values[0] == "":
		return "", ErrNoKey
	default:
		return values[0], nil
	}
}

// KeyID returns the entity that [ByHeader] and [ByBearer] derive from a secret: key- and the first 32 hexadecimal
// digits of its SHA-256. It is stable, and cannot be reversed if the secret is long and random, as keys are. Set a
// key's limits on this entity:
//
//	weir entity limits set key-$(printf %s "$KEY" | sha256sum | cut -c1-32) -l rpm:600/min
func KeyID(secret string) string { return answer.SecretID(secret) }

// ByRemoteAddr returns a KeyFunc that derives an entity from the client's address: ip-203.0.113.7, or for IPv6 the /64
// that contains it, ip-2001:db8:0:1::/64, because a customer has at least that many addresses.
//
// Behind proxies, pass their networks. If the peer is in one of them, the client is the last address in X-Forwarded-For
// that is in none. The client wrote everything before that address, so it is ignored; if the peer is not trusted, the
// whole field is ignored. Every proxy in these networks must append to the field. Without an IP address, as on a Unix
// socket, the result is [ErrNoKey].
func ByRemoteAddr(trusted ...netip.Prefix) KeyFunc {
	trusted = answer.Trusted(trusted)
	return func(r *http.Request) (string, error) {
		addr, ok := answer.Client(r.RemoteAddr, r.Header["X-Forwarded-For"], trusted)
		if !ok {
			return "", ErrNoKey
		}
		return answer.AddrID(addr), nil
	}
}

// First returns a KeyFunc that returns the result of the first of keys that finds a key, that is, does not return
// [ErrNoKey]. If none does, it returns ErrNoKey.
//
//	Entity: httplimit.First(httplimit.ByHeader("X-Api-Key"), httplimit.ByRemoteAddr())
func First(keys ...KeyFunc) KeyFunc {
	return func(r *http.Request) (string, error) {
		for _, key := range keys {
			if id, err := key(r); !errors.Is(err, ErrNoKey) {
				return id, err
			}
		}
		return "", ErrNoKey
	}
}

// Each returns a function for [Config].Tokens that requests one token of each named limit.
func Each(limits ...string) func(*http.Request) (weir.Tokens, error) {
	tokens := make(weir.Tokens, len(limits))
	for _, name := range limits {
		tokens[name] = 1
	}
	return func(*http.Request) (weir.Tokens, error) { return tokens, nil }
}

// PeekBody returns the body of a request, for use in [Config].Tokens, and leaves it for the handler to read. A body of
// more than limit bytes is a [*StatusError] of 413, a body that cannot be read one of 400.
func PeekBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &StatusError{
			http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit),
		}
	case err != nil:
		return nil, &StatusError{http.StatusBadRequest, "the body cannot be read"}
	case int64(len(body)) > limit:
		return nil, &StatusError{
			http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", limit),
		}
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(body), r.Body}
	return body, nil
}
