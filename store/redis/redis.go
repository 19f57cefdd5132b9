// Package redis keeps buckets and catalog in Redis 7 or later, or Valkey, for any number of processes. A decision is
// one script: it covers all buckets and limits of a take, all or nothing, at the server's time.
//
// docs/format/redis.md describes the layout, and docs/stores/redis.md what a failover can lose.
package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
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
	// rediss:// and valkeys://, alone or before a plus, connect with TLS. All forms accept the options prefix,
	// margin and volatile=true.
	Address string
	// Username and Password are used if the address has none.
	Username, Password string
	// SentinelUsername and SentinelPassword are the credentials for the sentinels. Default to none.
	SentinelUsername, SentinelPassword string
	// TLS configures the connections of a rediss:// address. Defaults to TLS 1.2 or later and the machine's
	// certificates.
	TLS *tls.Config
	// Prefix begins all keys, so that stores can share a server. It has at most 255 bytes, and no braces. Defaults to
	// the address's prefix, otherwise to weir.
	Prefix string

	// CallTimeout bounds one call, including connecting. Defaults to 1 s.
	CallTimeout time.Duration
	// Margin is how long a bucket is kept after it is full, and a settle's ID after it expires. The server's clock may
	// go back by as much without any token being handed out again. At least 1 s. Defaults to
	// the address's margin, otherwise to 1 h.
	Margin time.Duration
	// Connections is the number of connections to one server over which calls are pipelined: a power of two, at most
	// 64. Defaults to 2.
	Connections int

	// Volatile accepts a server that persists nothing, or does not show whether it does: a restart loses every bucket
	// and every limit. It is for tests, and for services that rely on replicas. Defaults to the address's volatile.
	Volatile bool

	// Now replaces the server's clock. For tests: all users of the data must agree on it. Defaults to none.
	Now func() time.Time

	lookEvery time.Duration // in place of a minute
}

// Store is a store in Redis. It is safe for concurrent use.
type Store struct {
	server
	queues
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Epochs  = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
)

// Open returns a store on a server. It checks that the server is a primary of a supported version, that it evicts
// nothing, that it persists its data (see [Config.Volatile]), and that its data was not written by a later version of
// weir. [Inspect] reports each check separately.
//
// The store looks again whether the server evicts, or any primary of a cluster, once a minute and after each
// reconnection; after one of them did not answer, 10 ms later, then more and more rarely, up to once a second, until
// all do. While one evicts, or may not be asked, takes fail.
//
// Errors are a [*store.Error]; one about the configuration matches [store.ErrInvalid].
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
	every := cmp.Or(s.cfg.lookEvery, lookEvery)
	s.guard.watch(every, func(ctx context.Context) bool { return s.guard.right(ctx, &s.server) })
	return s, nil
}

// connect returns a store that is connected but has checked nothing.
func connect(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{server: server{cfg: cfg, guard: guard{dialed: make(chan struct{}, 1)}, hand: hand{local: time.Now}}}
	if cfg.Now != nil {
		s.hand.local = cfg.Now
	}
	s.queues.server, s.queues.late = &s.server, s.giveBack
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

// Close implements [store.Store].
func (s *Store) Close() error {
	s.closed.Store(true)
	s.guard.close()
	s.group.Close()
	(*s.client.Load()).Close() // waits for calls in flight
	return nil
}

// maxKeys is how many buckets or records one script reads, so that it delays other calls only briefly.
const maxKeys = 256

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	if err := s.ready(ctx); err != nil {
		return store.Snapshot{}, err
	}
	snap := store.Snapshot{States: make([]store.State, 0, len(buckets))}
	for rest, first := buckets, true; first || len(rest) > 0; first = false {
		n := s.together(rest)
		keys := make([]string, 0, n)
		for _, b := range rest[:n] {
			key, _ := s.keys.bucket(b)
			keys = append(keys, key)
		}
		if n == 0 {
			keys = append(keys, s.keys.marker("")) // names no marker, but a cluster needs a key to route by
		}
		got, err := call(ctx, &s.server, script.Peek, keys, []string{s.now()}, asStrings)
		about := "buckets"
		if n > 0 {
			about = rest[0].String()
		}
		if err == nil && (len(got) != len(keys)+1 || len(got[0]) != 8) {
			err = layout.ErrFormat
		}
		if err != nil {
			return store.Snapshot{}, s.trouble("peek", about, err)
		}
		now := layout.Read64(got[0])
		snap.At = later(snap.At, clock.Time(now))
		for i, b := range rest[:n] {
			st := store.State{Bucket: b}
			if raw := got[i+1]; raw != "" {
				if st, err = layout.ParseBucket(b, raw, now); err != nil {
					return store.Snapshot{}, s.trouble("peek", b.String(), err)
				}
			}
			snap.States = append(snap.States, st)
		}
		rest = rest[n:]
	}
	return snap, nil
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, buckets ...store.Bucket) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for rest := buckets; len(rest) > 0; {
		n := s.together(rest)
		keys, args := make([]string, n), append(make([]string, 0, 1+2*n), s.now())
		for i, b := range rest[:n] {
			var base int
			keys[i], base = s.keys.bucket(b)
			args = append(args, strconv.Itoa(base), string(layout.Pair(nil, int64(birth()))))
		}
		if _, err := call(ctx, &s.server, script.Forget, keys, args, asMessage); err != nil {
			return s.trouble("forget", rest[0].String(), err)
		}
		rest = rest[n:]
	}
	return nil
}

// Buckets implements [store.Store].
func (s *Store) Buckets(ctx context.Context, q store.BucketQuery) (store.BucketPage, error) {
	if err := s.ready(ctx); err != nil {
		return store.BucketPage{}, err
	}
	pages := cursor.OfBuckets(&q)
	from, to := "-", "+"
	if q.Entity != "" {
		from, to = "["+q.Entity+"\x00", "("+q.Entity+"\x01"
	}
	if q.After != "" {
		at, err := pages.Parse(q.After)
		if err != nil {
			return store.BucketPage{}, err
		}
		from = "(" + member(at.ID, at.Sub)
	}
	limit := store.PageSize(q.Max)
	base := s.keys.base(q.Namespace) + "b"
	var page store.BucketPage
	for len(page.States) <= limit { // one more than the limit, to see whether there is a next page
		got, err := call(ctx, &s.server, script.Buckets, []string{s.keys.index(q.Namespace)},
			[]string{s.now(), base, from, to, strconv.Itoa(limit + 1 - len(page.States)), q.Resource}, asStrings)
		if err == nil && (len(got) < 2 || len(got)%2 != 0 || len(got[0]) != 8) {
			err = layout.ErrFormat
		}
		if err != nil {
			return store.BucketPage{}, s.trouble("list", q.Namespace, err)
		}
		now := layout.Read64(got[0])
		page.At = later(page.At, clock.Time(now))
		for i := 2; i < len(got); i += 2 {
			entity, resource, _ := strings.Cut(got[i], "\x00")
			b := store.Bucket{Namespace: q.Namespace, Entity: entity, Resource: resource}
			st, err := layout.ParseBucket(b, got[i+1], now)
			if err != nil {
				return store.BucketPage{}, s.trouble("list", b.String(), err)
			}
			page.States = append(page.States, st)
		}
		if got[1] == "" {
			break
		}
		from = "(" + got[1]
	}
	if len(page.States) > limit {
		page.States = page.States[:limit]
		last := page.States[limit-1].Bucket
		page.Next = pages.Make(cursor.Position{ID: last.Entity, Sub: last.Resource})
	}
	return page, nil
}

// together returns how many of the first buckets fit into one script: at most maxKeys and, in a cluster, of one
// namespace.
func (s *Store) together(buckets []store.Bucket) int {
	for i := range buckets {
		if i == maxKeys || s.cluster && buckets[i].Namespace != buckets[0].Namespace {
			return i
		}
	}
	return len(buckets)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
