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
	"github.com/weirlimits/weir/internal/middleware"
)

// KeyFunc makes an entity or a resource of a call: 1 to 256 bytes of printable text. An error with a gRPC status other
// than OK ends the call with that; any other error is INTERNAL, and logged.
type KeyFunc func(context.Context, *Call) (string, error)

// Fixed returns a KeyFunc that returns id for all calls.
func Fixed(id string) KeyFunc {
	return func(context.Context, *Call) (string, error) { return id, nil }
}

// ByMethod returns the full method of a call: "/package.Service/Method".
func ByMethod(_ context.Context, call *Call) (string, error) { return call.Method, nil }

// ByMetadata returns a KeyFunc that makes an entity of the secret under a key of the metadata, as [KeyID] does, so that
// neither the store nor a log ever holds the secret. A call without it is [ErrNoKey]; one that has it twice is
// INVALID_ARGUMENT, since who checks the key might look at the other one.
//
// A value with more than the secret, as authorization has, is not for it: see [ByBearer].
func ByMetadata(key string) KeyFunc {
	return func(ctx context.Context, _ *Call) (string, error) {
		secret, err := only(ctx, key)
		if err != nil {
			return "", err
		}
		return middleware.SecretID(secret), nil
	}
}

// ByBearer returns a KeyFunc that makes an entity of the token in authorization: Bearer, as [ByMetadata] does of its
// value. Another scheme is [ErrNoKey].
func ByBearer() KeyFunc {
	return func(ctx context.Context, _ *Call) (string, error) {
		value, err := only(ctx, "authorization")
		if err != nil {
			return "", err
		}
		token, ok := middleware.Bearer(value)
		if !ok {
			return "", ErrNoKey
		}
		return middleware.SecretID(token), nil
	}
}

// only returns the one value of a key.
func only(ctx context.Context, key string) (string, error) {
	switch values := metadata.ValueFromIncomingContext(ctx, key); {
	case len(values) > 1:
		return "", status.Errorf(codes.InvalidArgument, "%s is there %d times", key, len(values))
	case len(values) == 0 || values[0] == "":
		return "", ErrNoKey
	default:
		return values[0], nil
	}
}

// KeyID returns the entity that [ByMetadata] and [ByBearer] make of a secret: key- and the first 32 hexadecimal digits of
// its SHA-256. It is the same as that of package httplimit, is stable, and cannot be turned back if the secret is long
// and random, as keys are.
func KeyID(secret string) string { return middleware.SecretID(secret) }

// ByPeer returns a KeyFunc that makes an entity of the client's address: ip-203.0.113.7, or for IPv6 the /64 that it lies
// in, ip-2001:db8:0:1::/64, since a customer has at least that many.
//
// Behind proxies, name their networks: if the peer is in one, the client is the last address under x-forwarded-for that is
// not. What stands before that was written by the client, and is not looked at; neither is any of it when the peer
// is not trusted. Every proxy that is named must append to it. Without an IP address, as on a Unix socket, it is
// [ErrNoKey].
func ByPeer(trusted ...netip.Prefix) KeyFunc {
	trusted = middleware.Trusted(trusted)
	return func(ctx context.Context, _ *Call) (string, error) {
		p, ok := peer.FromContext(ctx)
		if !ok || p.Addr == nil {
			return "", ErrNoKey
		}
		addr, ok := middleware.Client(p.Addr.String(), metadata.ValueFromIncomingContext(ctx, "x-forwarded-for"), trusted)
		if !ok {
			return "", ErrNoKey
		}
		return middleware.AddrID(addr), nil
	}
}

// First returns a KeyFunc that returns what the first of keys returns that finds a key: any that does not return
// [ErrNoKey]. If none does, neither does it.
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

// Each returns a function for [Config].Tokens: one token of each limit named.
func Each(limits ...string) func(context.Context, *Call) (weir.Tokens, error) {
	tokens := make(weir.Tokens, len(limits))
	for _, name := range limits {
		tokens[name] = 1
	}
	return func(context.Context, *Call) (weir.Tokens, error) { return tokens, nil }
}

// SkipInfrastructure reports whether a call is of the health or the reflection service, which load balancers and tools call
// without a key. It is the default of [Config].Skip, for those who skip more to call.
func SkipInfrastructure(_ context.Context, call *Call) bool {
	return strings.HasPrefix(call.Method, "/grpc.health.") || strings.HasPrefix(call.Method, "/grpc.reflection.")
}
