package ledger

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// The keys of a book, which order bytewise, made of parts as [varint.AppendParts] appends them.
//
//	a | namespace | entity | resource                              an account of a bucket
//	p | namespace | entity | resource | process                    an account of a process
//	w | d, h or m | start, 8 bytes | of | namespace | id | sub     a window
const (
	accountSpace = 'a'
	processSpace = 'p'
	windowSpace  = 'w'
)

func accountKey(b store.Bucket, source string) []byte {
	if source == "" {
		return varint.AppendParts([]byte{accountSpace}, b.Namespace, b.Entity, b.Resource)
	}
	return varint.AppendParts([]byte{processSpace}, b.Namespace, b.Entity, b.Resource, source)
}

func letterOf(w store.Window) byte {
	if w == "" {
		return 0
	}
	return w[0]
}

func (w *Window) key() []byte { return varint.AppendParts(w.subject(), w.ID, w.Sub) }

// subject returns the common prefix of the keys of the windows of all subjects of a kind.
func (w *Window) subject() []byte {
	key := binary.BigEndian.AppendUint64([]byte{windowSpace, letterOf(w.Type)}, uint64(w.Start)^1<<63)
	return varint.AppendParts(append(key, byte(w.Of)), w.Namespace)
}

func parseWindow(raw []byte) (w Window, ok bool) {
	if len(raw) < 11 || raw[0] != windowSpace {
		return w, false
	}
	at := slices.IndexFunc(store.Windows, func(w store.Window) bool { return letterOf(w) == raw[1] })
	if at < 0 {
		return w, false
	}
	w.Type, w.Start, w.Of = store.Windows[at], startOf(raw), store.UsageOf(raw[10])
	rest := raw[11:]
	for _, part := range []*string{&w.Namespace, &w.ID, &w.Sub} {
		if *part, rest, ok = varint.CutPart(rest); !ok {
			return w, false
		}
	}
	return w, len(rest) == 0
}

// startOf returns the start in a window's key without parsing the rest.
func startOf(raw []byte) int64 { return int64(binary.BigEndian.Uint64(raw[2:]) ^ 1<<63) }

func (w *Window) time() time.Time { return time.Unix(w.Start, 0).UTC() }
