// Package redis keeps buckets and catalog in Redis 7 or later, or Valkey, for any number of processes. A decision is one
// script: all buckets and limits of a take, all or none, at the server's time.
//
// The layout is described in docs/format/redis.md, what a failover can lose in docs/guide/redis.md.
package redis

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store"
)

// Config configures a [Store]. Address is required.
type Config struct {
	// Address is where the server is:
	//
	//	redis://[USER:PASSWORD@]HOST[:PORT][/DB]             one server; rediss:// with TLS, valkey:// and valkeys:// the same
	//	unix:///PATH[?db=DB]                                 the same, on this machine
	//	redis+sentinel://HOST[:PORT],HOST[:PORT]/MASTER[/DB] the primary that sentinels know; rediss+sentinel:// with TLS
	//	redis+cluster://HOST[:PORT],HOST[:PORT]              a cluster; rediss+cluster:// with TLS
	//
	// All take the option prefix.
	Address string
	// Username and Password are used where the address has none.
	Username, Password string
	// SentinelUsername and SentinelPassword are those of the sentinels. None by default.
	SentinelUsername, SentinelPassword string
	// TLS replaces what a rediss:// address means: TLS 1.2 or later and the machine's certificates.
	TLS *tls.Config
	// Prefix begins all keys, so that stores can share a server. No braces. Defaults to the address's, else weir.
	Prefix string

	// CallTimeout bounds one call, connecting included. Defaults to 1 s.
	CallTimeout time.Duration
	// Margin is how long a bucket outlives the moment at which it is full, and a settle's ID its end. So far the server's
	// clock may go back without anything being handed out again. Defaults to an hour.
	Margin time.Duration
	// Connections is over how many connections calls are pipelined to one server, a power of two. Defaults to 2.
	Connections int

	// Now tells the time in place of the server's clock. For tests: all who use the data must agree on it.
	Now func() time.Time
}

// Store is a store in Redis. It is safe for concurrent use.
type Store struct {
	cfg     Config
	options rueidis.ClientOption
	cluster bool
	keys    keys
	client  atomic.Pointer[rueidis.Client]
	again   atomic.Bool // a new client is being made
	closed  atomic.Bool
	gate    sync.Mutex // nothing takes off once closed
	flights sync.WaitGroup
	lanes   sync.Map // of namespaces in a cluster, else of ""
	rides   sync.Pool
}

var _ store.Store = (*Store)(nil)

// Open returns a store on a server, after it has seen that it is a primary of a version that weir can use, that it evicts
// nothing, and that what it holds is not a later weir's. [Inspect] tells these apart.
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

// connect returns a store that has connected, and looked at nothing.
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
		go func() { // it is bounded by the dialer's timeout
			if <-made == nil {
				(*s.client.Load()).Close()
			}
		}()
		return nil, s.trouble("open", "", ctx.Err())
	}
}

// run runs a script within the time of a call.
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

// renew replaces a client whose server is no longer a primary: its name or the sentinels may know another by now.
func (s *Store) renew(old *rueidis.Client) {
	if s.cluster || !s.again.CompareAndSwap(false, true) {
		return // a cluster's client follows by itself
	}
	_ = s.fly(func() {
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

// birth returns the id of a bucket that a call may have to make.
func (s *Store) birth() uint64 { return rand.Uint64() | 1 }

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.gate.Lock()
	s.closed.Store(true)
	s.gate.Unlock()
	s.flights.Wait()
	(*s.client.Load()).Close() // waits for what is under way
	return nil
}

// fly runs f beside its caller. Close waits for it.
func (s *Store) fly(f func()) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.closed.Load() {
		return store.ErrClosed
	}
	s.flights.Go(f)
	return nil
}
