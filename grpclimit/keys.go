package grpclimit

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

// KeyFunc returns the entity or the resource of a call: 1 to 256 bytes of printable text. An error with a gRPC status
// other than OK ends the call with that status. Any other error ends it with INTERNAL, and is logged.
type KeyFunc func(context.Context, *Call) (string, error)

// Fixed returns a KeyFunc that returns id for all calls.
func Fixed(id string) KeyFunc {
	return func(context.Context, *Call) (string, error) { return id, nil }
}

// ByMethod returns the full method of a call: "/package.Service/Method".
func ByMethod(_ context.Context, call *Call) (string, error) { return call.Method, nil }

// ByMetadata returns a KeyFunc that derives an entity from the secret under a metadata key by [KeyID], so neither the
// store nor any log contains the secret. A call without the key is [ErrNoKey]. A call that has it twice is
// INVALID_ARGUMENT, because the code that checks the key might use the other value.
//
// ByMetadata is not for values that contain more than the secret, such as authorization: see [ByBearer].
func ByMetadata(key string) KeyFunc {
	return func(ctx context.Context, _ *Call) (string, error) {
		secret, err := only(ctx, key)
		if err != nil {
			return "", err
		}
		return answer.SecretID(secret), nil
	}
}

// ByBearer returns a KeyFunc that derives an entity from the token in authorization: Bearer, like [ByMetadata]. Any
// other scheme is [ErrNoKey].
func ByBearer() KeyFunc {
	return func(ctx context.Context, _ *Call) (string, error) {
		value, err := only(ctx, "authorization")
		if err != nil {
			return "", err
		}
		token, ok := answer.Bearer(value)
		if !ok {
			return "", ErrNoKey
		}
		return answer.SecretID(token), nil
	}
}

// only returns the single value of a key.
func only(ctx context.Context, key string) (string, error) {
	switch values := metadata.ValueFromIncomingContext(ctx, key); {
	case len(values) > 1:
		return "", status.Errorf(codes.InvalidArgument, "%s appears %d times", key, len(values))
	case len(values) == 0 || values[0] == "":
		return "", ErrNoKey
	default:
		return values[0], nil
	}
}

// KeyID returns the entity that [ByMetadata] and [ByBearer] derive from a secret: key- and the first 32 hexadecimal
// digits of its SHA-256. It is the same as in package httplimit. It is stable, and cannot be reversed if the secret is
// long and random, as keys are.
func KeyID(secret string) string { return answer.SecretID(secret) }

// ByPeer returns a KeyFunc that derives an entity from the client's address: ip-203.0.113.7, or for IPv6 the /64 that
// contains it, ip-2001:db8:0:1::/64, because a customer has at least that many addresses.
//
// Behind proxies, pass their networks. If the peer is in one of them, the client is the last address in x-forwarded-for
// that is in none. The client wrote everything before that address, so it is ignored; if the peer is not trusted, all
// of it is ignored. Every proxy in these networks must append to it. Without an IP address, as on a Unix socket, the
// result is [ErrNoKey].
func ByPeer(trusted ...netip.Prefix) KeyFunc {
	trusted = answer.Trusted(trusted)
	return func(ctx context.Context, _ *Call) (string, error) {
		p, ok := peer.FromContext(ctx)
		if !ok || p.Addr == nil {
			return "", ErrNoKey
		}
		addr, ok := answer.Client(
			p.Addr.String(), metadata.ValueFromIncomingContext(ctx, "x-forwarded-for"), trusted,
		)
		if !ok {
			return "", ErrNoKey
		}
		return answer.AddrID(addr), nil
	}
}

// First returns a KeyFunc that returns the result of the first of keys that finds a key, that is, does not return
// [ErrNoKey]. If none does, it returns ErrNoKey.
func First(keys ...KeyFunc) KeyFunc {
	return func(ctx context.Context, call *Call) (string, error) {
		for _, key := range keys {
			if id, err := key(ctx, call); !errors.Is(err, ErrNoKey) {
				return id, err
			}
		}
		return "", ErrNoKey
	}
}

// Each returns a function for [Config].Tokens that requests one token of each named limit.
func Each(limits ...string) func(context.Context, *Call) (weir.Tokens, error) {
	tokens := make(weir.Tokens, len(limits))
	for _, name := range limits {
		tokens[name] = 1
	}
	return func(context.Context, *Call) (weir.Tokens, error) { return tokens, nil }
}

// SkipInfrastructure reports whether a call is to the health or reflection service, which load balancers and tools call
// without a key. It is the default of [Config].Skip; call it from functions that skip more.
func SkipInfrastructure(_ context.Context, call *Call) bool {
	return strings.HasPrefix(call.Method, "/grpc.health.") || strings.HasPrefix(call.Method, "/grpc.reflection.")
}
