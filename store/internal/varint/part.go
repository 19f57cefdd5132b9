package varint

import "bytes"

// AppendParts appends parts of a key, so that keys of several parts order bytewise as their parts do: each part ends
// with 0 0, and a 0 within it is written as 0 255.
func AppendParts(key []byte, parts ...string) []byte {
	for _, part := range parts {
		for i := range len(part) {
			if key = append(key, part[i]); part[i] == 0 {
				key = append(key, 0xff)
			}
		}
		key = append(key, 0, 0)
	}
	return key
}

// CutPart returns the first part of a key, and the rest. ok is false if the key does not begin with a part.
func CutPart(key []byte) (part string, rest []byte, ok bool) {
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
