package manifest

import "unicode/utf8"

// Pieces returns an upper bound on the number of keys, values and brackets in YAML or JSON text, without parsing it.
// The parser buffers everything inside brackets before it looks at it, with some hundred bytes per piece however
// short: count first when reading untrusted text.
func Pieces(text []byte) int {
	n, quotes, inside := 0, 0, false
	for _, c := range string(text) {
		switch c {
		case ' ', '\t', '\n', '\r', '\u0085', '\u2028', '\u2029', utf8.RuneError: // ends a line in YAML, also in UTF-16
			inside = false
		case '"', '\'': // two around a piece
			quotes++
			inside = false
		case ',', ':', '[', ']', '{', '}':
			n++
			inside = false
		default: // a piece ends at one of the characters above
			if !inside {
				n++
			}
			inside = true
		}
	}
	return n + quotes/2
}
