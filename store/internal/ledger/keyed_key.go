package ledger

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
)

// The keys of a book, which order bytewise. A part ends with 0 0, and a 0 within it is written as 0 255.
//
//	a | namespace | entity | resource                              an account of a bucket
//	p | namespace | entity | resource | process                    an account of a process
//	w | d, h or m | start, 8 bytes | of | namespace | id | sub     a window
const (
	accountSpace = 'a'
	processSpace = 'p'
	windowSpace  = 'w'
)

func appendPart(key []byte, part string) []byte {
	for i := range len(part) {
		if key = append(key, part[i]); part[i] == 0 {
			key = append(key, 0xff)
		}
	}
	return append(key, 0, 0)
}

func cutPart(key []byte) (part string, rest []byte, ok bool) {
	var buf []byte
	for {
		at := bytes.IndexByte(key, 0)
		if at < 0 || at+1 >= len(key) || key[at+1] != 0 && key[at+1] != 0xff {
			return "", nil, false
		}
		end := key[at+1] == 0
		if end && buf == nil {
			return string(key[:at]), key[at+2:], true
		}
		buf = append(buf, key[:at]...)
		if key = key[at+2:]; end {
			return string(buf), key, true
		}
		buf = append(buf, 0)
	}
}

func accountKey(key []byte, b store.Bucket, source string) []byte {
	if source == "" {
		return appendPart(appendPart(appendPart(append(key, accountSpace), b.Namespace), b.Entity), b.Resource)
	}
	key = appendPart(appendPart(appendPart(append(key, processSpace), b.Namespace), b.Entity), b.Resource)
	return appendPart(key, source)
}

func letterOf(w store.Window) byte {
	if w == "" {
		return 0
	}
	return w[0]
}

func (w *Window) key() []byte { return appendPart(appendPart(w.subject(), w.ID), w.Sub) }

// subject returns the common prefix of the keys of the windows of all subjects of a kind.
func (w *Window) subject() []byte {
	key := binary.BigEndian.AppendUint64([]byte{windowSpace, letterOf(w.Type)}, uint64(w.Start)^1<<63)
	return appendPart(append(key, byte(w.Of)), w.Namespace)
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
		if *part, rest, ok = cutPart(rest); !ok {
			return w, false
		}
	}
	return w, len(rest) == 0
}

// startOf returns the start in a window's key without parsing the rest.
func startOf(raw []byte) int64 { return int64(binary.BigEndian.Uint64(raw[2:]) ^ 1<<63) }

func (w *Window) time() time.Time { return time.Unix(w.Start, 0).UTC() }
