package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
)

// Get implements [store.Catalog]. A script reads the epoch and up to maxKeys records at one moment.
func (s *Store) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	if err := s.ready(ctx); err != nil {
		return store.Got{}, err
	}
	got := store.Got{Records: make([]store.Record, 0, len(keys))}
	for some := range slices.Chunk(keys, maxKeys) {
		first := len(got.Records) == 0
		epoch, err := s.read(ctx, some, &got.Records)
		if err != nil {
			return store.Got{}, err
		}
		if first || epoch < got.Epoch {
			got.Epoch = epoch
		}
	}
	return got, nil
}

// read appends the records of keys, and returns the epoch.
func (s *Store) read(ctx context.Context, keys []store.Key, to *[]store.Record) (epoch uint64, err error) {
	args := append(make([]string, 0, 3+2*len(keys)), s.now(), s.keys.base(registry), keys[0].Namespace)
	for _, k := range keys {
		if k.Namespace != keys[0].Namespace {
			return 0, invalid("the records are of two namespaces")
		}
		if err := checkKey(k, ""); err != nil {
			return 0, err
		}
		args = append(args, list(k.Namespace, k.Kind), member(k.ID, k.Sub))
	}
	raw, err := call(ctx, &s.server, script.Get, []string{s.keys.epochs()}, args, asStrings)
	if err == nil && len(raw) != len(keys)+1 {
		err = layout.ErrFormat
	}
	if err == nil {
		epoch, err = strconv.ParseUint(raw[0], 10, 64)
	}
	if err != nil {
		return 0, s.trouble("get", keys[0].String(), err)
	}
	for i, k := range keys {
		r := store.Record{Key: k}
		if raw[i+1] != "" {
			if r, err = parseRecord(k, raw[i+1]); err != nil {
				return 0, s.trouble("get", k.String(), err)
			}
		}
		*to = append(*to, r)
	}
	return epoch, nil
}

// Commit implements [store.Catalog], in one script.
func (s *Store) Commit(ctx context.Context, writes ...store.Write) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := store.CheckWrites(writes); err != nil {
		return err
	}
	args := append(make([]string, 0, 2+6*len(writes)), s.now(), s.keys.base(registry))
	seen := make(map[store.Key]bool, len(writes))
	for i := range writes {
		w := &writes[i]
		k := w.Record.Key
		if seen[k] || k.Namespace == "" || k.Kind == "" || w.Check && w.Delete {
			return invalid("a write of %s is incomplete or a duplicate, or both checks and deletes", k)
		}
		if err := checkKey(k, w.Record.Parent); err != nil {
			return err
		}
		seen[k] = true
		value := ""
		if !w.Delete && !w.Check {
			value = string(w.Record.Value)
		}
		args = append(
			args, list(k.Namespace, k.Kind), k.Namespace, member(k.ID, k.Sub), writeHead(w), w.Record.Parent, value,
		)
	}
	about := writes[0].Record.Key.String()
	got, err := call(ctx, &s.server, script.Commit, []string{s.keys.epochs()}, args, asArray)
	if err != nil {
		return s.trouble("commit", about, err)
	}
	if len(got) == 3 {
		i, ierr := got[1].AsInt64()
		have, herr := got[2].ToString()
		if ierr == nil && herr == nil && i >= 0 && int(i) < len(writes) && len(have) == 8 {
			return &store.ConflictError{
				Key: writes[i].Record.Key, Have: uint64(layout.Read64(have)), Want: writes[i].Record.Version,
			}
		}
	}
	if len(got) != 1 {
		return s.trouble("commit", about, layout.ErrFormat)
	}
	return nil
}

// writeHead encodes the version that a write expects, the kind of write, and the record's expiry.
func writeHead(w *store.Write) string {
	b := binary.BigEndian.AppendUint64(nil, w.Record.Version)
	what, expires, at := byte(0), byte(0), int64(0)
	switch {
	case w.Delete:
		what = 1
	case w.Check:
		what = 2
	}
	if !w.Record.Expires.IsZero() {
		expires, at = 1, clock.Nanos(w.Record.Expires)
	}
	return string(layout.Pair(append(b, what, expires), at))
}

const recordSize = 19

// parseRecord decodes a record.
func parseRecord(k store.Key, raw string) (store.Record, error) {
	r := store.Record{Key: k}
	if len(raw) < recordSize || len(raw) < recordSize+layout.Read16(raw[17:]) {
		return r, layout.ErrFormat
	}
	r.Version = uint64(layout.Read64(raw))
	if raw[8] == 1 {
		r.Expires = clock.Time(layout.Read64(raw[9:]))
	}
	end := recordSize + layout.Read16(raw[17:])
	r.Parent, r.Value = raw[recordSize:end], []byte(raw[end:])
	return r, nil
}

// enoughBytes is the size at which a page ends early.
const enoughBytes = 8 << 20

// List implements [store.Catalog]. A page of large records may hold fewer than requested.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.ready(ctx); err != nil {
		return store.Page{}, err
	}
	if err := checkKey(
		store.Key{Namespace: q.Namespace, Kind: q.Kind, ID: cmp.Or(q.ID, q.Prefix), Sub: q.Sub}, q.Parent,
	); err != nil {
		return store.Page{}, err
	}
	in, base := list(q.Namespace, q.Kind), s.keys.base(registry)
	index, from, to := listRange(base, in, &q)
	reverse := "0"
	if q.Reverse {
		from, to, reverse = to, from, "1"
	}
	pages := cursor.OfRecords(&q)
	if q.After != "" {
		at, err := pages.Parse(q.After)
		if err != nil {
			return store.Page{}, err
		}
		from = "(" + member(at.ID, at.Sub)
	}
	got, err := call(ctx, &s.server, script.List, []string{index}, []string{
		s.now(), base + "r:" + in, from, to, reverse, strconv.Itoa(store.PageSize(q.Max)), q.Sub, q.Parent,
		strconv.Itoa(enoughBytes),
	}, asStrings)
	if err == nil && len(got)%2 != 1 {
		err = layout.ErrFormat
	}
	if err != nil {
		return store.Page{}, s.trouble("list", in, err)
	}
	var page store.Page
	for i := 1; i < len(got); i += 2 {
		id, sub, _ := strings.Cut(got[i], "\x00")
		r, err := parseRecord(store.Key{Namespace: q.Namespace, Kind: q.Kind, ID: id, Sub: sub}, got[i+1])
		if err != nil {
			return store.Page{}, s.trouble("list", r.Key.String(), err)
		}
		page.Records = append(page.Records, r)
	}
	if got[0] == "1" {
		last := page.Records[len(page.Records)-1].Key
		page.Next = pages.Make(cursor.Position{ID: last.ID, Sub: last.Sub})
	}
	return page, nil
}

// listRange returns the index that a query reads, and the first and last of its members that match.
func listRange(base, in string, q *store.Query) (index, from, to string) {
	index, from, to = base+"x:"+in, "-", "+"
	switch {
	case q.ID != "":
		return index, "[" + q.ID + "\x00", "(" + q.ID + "\x01"
	case q.Parent != "":
		index = base + "p:" + in + ":" + q.Parent
	case q.Sub != "":
		index = base + "s:" + in + ":" + q.Sub
	}
	if q.Prefix != "" {
		from, to = "["+q.Prefix, "("+q.Prefix+"\xff" // \xff occurs in no text
	}
	return index, from, to
}

// Epochs implements [store.Epochs]. It is one script, which a replica refuses.
func (s *Store) Epochs(ctx context.Context, namespaces ...string) ([]uint64, error) {
	if err := s.ready(ctx); err != nil || len(namespaces) == 0 {
		return nil, err
	}
	raw, err := call(ctx, &s.server, script.Epochs, []string{s.keys.epochs()}, namespaces, asStrings)
	if err == nil && len(raw) != len(namespaces) {
		err = layout.ErrFormat
	}
	if err != nil {
		return nil, s.trouble("get", s.keys.epochs(), err)
	}
	ns := make([]uint64, len(raw))
	for i, text := range raw {
		if ns[i], err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, s.trouble("get", s.keys.epochs(), layout.ErrFormat)
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
		if ok = len(m) >= 4 && uint64(len(m)-4) >= uint64(layout.Read32(m)); ok {
			n := 4 + int(layout.Read32(m))
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
