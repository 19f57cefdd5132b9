package redis

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store"
)

var (
	_ store.Epochs  = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
)

// Epochs implements [store.Epochs]. It is one script, which a replica refuses.
func (s *Store) Epochs(ctx context.Context, namespaces ...string) ([]uint64, error) {
	if err := s.ready(ctx); err != nil || len(namespaces) == 0 {
		return nil, err
	}
	raw, err := s.run(ctx, epochsScript, []string{s.keys.epochs()}, namespaces).AsStrSlice()
	if err == nil && len(raw) != len(namespaces) {
		err = errFormat
	}
	if err != nil {
		return nil, s.trouble("get", s.keys.epochs(), err)
	}
	ns := make([]uint64, len(raw))
	for i, text := range raw {
		if ns[i], err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, s.trouble("get", s.keys.epochs(), errFormat)
		}
	}
	return ns, nil
}

// Watch implements [store.Watcher], through the messages that each commit publishes.
func (s *Store) Watch(ctx context.Context, ready func(), changed func(store.Changes)) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	c := *s.client.Load()
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(sub rueidis.PubSubSubscription) {
		if sub.Kind == "subscribe" {
			ready()
		}
	})
	err := c.Receive(ctx, c.B().Subscribe().Channel(s.keys.channel()).Build(), func(m rueidis.PubSubMessage) {
		if ch, ok := parseChanges(m.Message); ok {
			changed(ch)
		} else {
			ready() // something has changed, but not known what
		}
	})
	return s.trouble("watch", s.keys.channel(), err)
}

// parseChanges decodes a message published by commit.lua.
func parseChanges(m string) (ch store.Changes, ok bool) {
	next := func() (part string) {
		if ok = len(m) >= 4 && uint64(len(m)-4) >= uint64(read32(m)); ok {
			n := 4 + int(read32(m))
			part, m = m[4:n], m[n:]
		}
		return part
	}
	if ch.Namespace = next(); !ok {
		return ch, false
	}
	epoch := next()
	if !ok {
		return ch, false
	}
	var err error
	if ch.Epoch, err = strconv.ParseUint(epoch, 10, 64); err != nil {
		return ch, false
	}
	for m != "" {
		list := next()
		if !ok {
			return ch, false
		}
		member := next()
		at := strings.LastIndexByte(list, ':')
		if !ok || at < 0 {
			return ch, false
		}
		id, sub, _ := strings.Cut(member, "\x00")
		ch.Keys = append(ch.Keys, store.Key{Namespace: ch.Namespace, Kind: store.Kind(list[at+1:]), ID: id, Sub: sub})
	}
	return ch, true
}
