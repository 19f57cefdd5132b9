// Package redis keeps buckets and catalog in Redis 7 or later, or Valkey, for any number of processes. A decision is
// one script: it covers all buckets and limits of a take, all or nothing, at the server's time.
//
// docs/format/redis.md describes the layout, and docs/guide/redis.md what a failover can lose.
package redis

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Store]. Address is required.
type Config struct {
	// Address is the address of the server:
	//
	//	redis://[USER:PASSWORD@]HOST[:PORT][/DB]             one server; valkey:// likewise
	//	unix:///PATH[?db=DB]                                 one server on this machine
	//	redis+sentinel://HOST[:PORT],HOST[:PORT]/MASTER[/DB] the primary that sentinels name
	//	redis+cluster://HOST[:PORT],HOST[:PORT]              a cluster
	//
	// rediss:// and valkeys://, alone or before a plus, connect with TLS. All forms accept the option prefix.
	Address string
	// Username and Password are used if the address has none.
	Username, Password string
	// SentinelUsername and SentinelPassword are the credentials for the sentinels. Default to none.
	SentinelUsername, SentinelPassword string
	// TLS replaces the settings of a rediss:// address: TLS 1.2 or later and the machine's certificates.
	TLS *tls.Config
	// Prefix begins all keys, so that stores can share a server. It must not contain braces. Defaults to the address's
	// prefix, otherwise to weir.
	Prefix string

	// CallTimeout limits one call, including connecting. Defaults to 1 s.
	CallTimeout time.Duration
	// Margin is how long a bucket is kept after it is full, and a settle's ID after it expires. The server's clock may
	// go back by as much without any token being handed out again. Defaults to one hour.
	Margin time.Duration
	// Connections is the number of connections to one server over which calls are pipelined, a power of two. Defaults
	// to 2.
	Connections int

	// Now replaces the server's clock. For tests: all users of the data must agree on it.
	Now func() time.Time
}

// Store is a store in Redis. It is safe for concurrent use.
type Store struct {
	cfg     Config
	options rueidis.ClientOption
	cluster bool
	keys    keys
	client  atomic.Pointer[rueidis.Client]
	again   atomic.Bool // a new client is being created
	closed  atomic.Bool
	group   batch.Group
	queues  sync.Map // by namespace in a cluster, otherwise a single one under ""
	waiters sync.Pool
}

var _ store.Store = (*Store)(nil)

// Open returns a store on a server. It checks that the server is a primary of a supported version, that it evicts
// nothing, and that its data was not written by a later version of weir. [Inspect] reports each check separately.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for _, f := range s.inspect(ctx) {
		if f.Err != nil {
			_ = s.Close()
			return nil, f.Err
		}
	}
	return s, nil
}

// connect returns a store that is connected but has checked nothing.
func connect(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{cfg: cfg}
	if err := s.configure(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	made := make(chan error, 1)
	go func() {
		c, err := rueidis.NewClient(s.options)
		if err == nil {
			s.client.Store(&c)
		} else if c != nil {
			c.Close()
		}
		made <- err
	}()
	select {
	case err := <-made:
		if err != nil {
			return nil, s.trouble("open", "", err)
		}
		return s, nil
	case <-ctx.Done():
		go func() { // limited by the dialer's timeout
			if <-made == nil {
				(*s.client.Load()).Close()
			}
		}()
		return nil, s.trouble("open", "", ctx.Err())
	}
}

// run runs a script within the call timeout.
func (s *Store) run(ctx context.Context, sc *script, keys, args []string) rueidis.RedisResult {
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > s.cfg.CallTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.CallTimeout)
		defer cancel()
	}
	c := s.client.Load()
	r := sc.run(ctx, *c, keys, args)
	if demoted(r.Error()) {
		s.renew(c)
	}
	return r
}

// renew replaces a client whose server is no longer a primary: the name or the sentinels may point to another by now.
func (s *Store) renew(old *rueidis.Client) {
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

// birth returns an id for a bucket that a call may have to create.
func (s *Store) birth() uint64 { return rand.Uint64() | 1 }

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.closed.Store(true)
	s.group.Close()
	(*s.client.Load()).Close() // waits for calls in flight
	return nil
}
