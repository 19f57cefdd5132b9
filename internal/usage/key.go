package usage

import (
	"bytes"
	"encoding/binary"
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

// windowKey is the parsed key of a window.
type windowKey struct {
	window    byte
	start     int64 // seconds since the Unix epoch
	of        store.UsageOf
	namespace string
	id, sub   string
}

func letter(w store.Window) byte {
	if w == "" {
		return 0
	}
	return w[0]
}

func (k *windowKey) append(key []byte) []byte {
	key = k.appendSubject(key)
	return appendPart(appendPart(key, k.id), k.sub)
}

// appendSubject appends the common prefix of the windows of all subjects of a kind.
func (k *windowKey) appendSubject(key []byte) []byte {
	key = binary.BigEndian.AppendUint64(append(key, windowSpace, k.window), uint64(k.start)^1<<63)
	return appendPart(append(key, byte(k.of)), k.namespace)
}

func parseWindowKey(raw []byte) (k windowKey, ok bool) {
	if len(raw) < 11 || raw[0] != windowSpace {
		return k, false
	}
	k.window, k.start, k.of = raw[1], int64(binary.BigEndian.Uint64(raw[2:])^1<<63), store.UsageOf(raw[10])
	rest := raw[11:]
	for _, part := range []*string{&k.namespace, &k.id, &k.sub} {
		if *part, rest, ok = cutPart(rest); !ok {
			return k, false
		}
	}
	return k, len(rest) == 0
}

// startOf returns the start in a window's key without parsing the rest.
func startOf(raw []byte) int64 { return int64(binary.BigEndian.Uint64(raw[2:]) ^ 1<<63) }

func (k *windowKey) time() time.Time { return time.Unix(k.start, 0).UTC() }
