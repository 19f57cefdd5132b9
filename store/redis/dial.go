package redis

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
	"github.com/weirlimits/weir/store/redis/internal/settings"
)

// server is the server of a store, or its cluster, and the connections to it.
type server struct {
	cfg     Config
	options rueidis.ClientOption
	cluster bool
	keys    keys
	client  atomic.Pointer[rueidis.Client]
	again   atomic.Bool // a new client is being created
	closed  atomic.Bool
	group   batch.Group
	guard   guard
	hand    hand
}

// dialer returns a function that connects to a server, whose settings are then looked at again. If the server is the
// only one, the function checks each connection's role before use.
func (s *server) dialer(
	network string, only bool,
) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
		defer cancel()
		var conn net.Conn
		var err error
		if cfg != nil {
			conn, err = (&tls.Dialer{NetDialer: d, Config: cfg}).DialContext(ctx, network, addr)
		} else {
			conn, err = d.DialContext(ctx, network, addr)
		}
		if err != nil {
			return nil, err
		}
		if only {
			if err := settings.AssertPrimary(ctx, conn, s.options.Username, s.options.Password); err != nil {
				_ = conn.Close()
				return nil, err
			}
		}
		s.guard.look()
		return conn, nil
	}
}

// What reads the answers of scripts.
var (
	asStrings = rueidis.RedisResult.AsStrSlice
	asString  = rueidis.RedisResult.ToString
	asArray   = rueidis.RedisResult.ToArray
	asInt     = rueidis.RedisResult.AsInt64
	asMessage = rueidis.RedisResult.ToMessage
)

// call runs a script within the call timeout, and reads its answer, unless ctx ends first. The script does not end with
// ctx: it may be the one for which a connection is made, and all that wait for the connection would fail with it.
func call[T any](
	ctx context.Context, s *server, sc *script.Script, keys, args []string, read func(rueidis.RedisResult) (T, error),
) (got T, err error) {
	answers := make(chan rueidis.RedisResult, 1)
	go func() { answers <- s.run(s.cfg.CallTimeout, sc, keys, args) }()
	select {
	case r := <-answers:
		return read(r)
	case <-ctx.Done():
		return got, ctx.Err()
	}
}

// run runs a script, and waits that long for its answer.
func (s *server) run(within time.Duration, sc *script.Script, keys, args []string) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c := s.client.Load()
	r := sc.Run(ctx, *c, keys, args)
	if demoted(r.Error()) {
		s.renew(c)
	}
	return r
}

// renew replaces a client whose server is no longer a primary: the name or the sentinels may point to another by now.
func (s *server) renew(old *rueidis.Client) {
	if s.cluster || !s.again.CompareAndSwap(false, true) {
		return // a cluster's client follows on its own
	}
	s.group.Go(func() {
		defer s.again.Store(false)
		if s.client.Load() != old {
			return
		}
		c, err := rueidis.NewClient(s.options)
		if c == nil || err != nil && !s.options.ForceSingleClient {
			return // the next call tries again
		}
		s.client.Store(&c)
		(*old).Close()
	})
}

func (s *server) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// now returns the time argument of scripts: empty, except in tests.
func (s *server) now() string {
	if s.cfg.Now == nil {
		return ""
	}
	return string(layout.Pair(nil, clock.Nanos(s.cfg.Now())))
}

func (s *server) margin() string { return strconv.FormatInt(s.cfg.Margin.Milliseconds(), 10) }
