package secret

import (
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
)

// Address is an address, such as a store's, that may hold a user and a password. However it is printed or logged, these
// appear as [redacted]; a conversion to string reveals them.
type Address string

// sensitive are the options in an address that hold secrets.
var sensitive = regexp.MustCompile(`(?i)([?&][^=&#]*(?:pass|secret|token|key|credential|signature)[^=&#]*=)[^&#]*`)

// String returns the address without user and password. Of one that is not well-formed, it rather omits too much.
func (a Address) String() string {
	text := string(a)
	scheme, rest, ok := strings.Cut(text, ":")
	at := strings.LastIndexByte(rest, '@')
	if !ok || scheme == "disk" { // a path
		return text
	}
	if at >= 0 {
		slashes := len(rest) - len(strings.TrimLeft(rest, "/"))
		text = scheme + ":" + rest[:min(slashes, at)] + hidden + rest[at:]
	}
	return sensitive.ReplaceAllString(text, "${1}"+hidden)
}

// urls finds URLs in texts, also in encoded JSON, of which it leaves the escaped quotes.
var urls = regexp.MustCompile(`[\w+.-]*://(?:\\[^"]|[^\s"\\])*`)

// Redact omits, from the URLs in a text that others may have written, such as an error or a log line, what
// [Address.String] does. A URL ends at a space or a double quote.
func Redact(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	return urls.ReplaceAllStringFunc(text, func(url string) string { return Address(url).String() })
}

// HasPassword reports whether a text is an address with a password, or has an option that is such an address. Options
// that hold secrets themselves do not count: no store has one. A password is what follows the first colon before the
// last @ of the authority. Without an @ there, but with one later, it may have a /, ? or # in it ("redis://:p/w@h"):
// then it is what follows that colon, unless that is a port ("https://h:8080/a@b").
func HasPassword(text string) bool {
	for rest := text; ; {
		_, after, ok := strings.Cut(rest, "://")
		if !ok {
			return false
		}
		rest = after
		end := strings.IndexAny(rest, "/?#")
		if end < 0 {
			end = len(rest)
		}
		user, _, in := cutLast(rest[:end], '@')
		if !in && !strings.Contains(rest, "@") {
			continue
		}
		_, password, ok := strings.Cut(user, ":")
		if _, err := strconv.ParseUint(password, 10, 16); ok && password != "" && (in || err != nil) {
			return true
		}
	}
}

// cutLast is strings.Cut at the last sep.
func cutLast(text string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(text, sep); i >= 0 {
		return text[:i], text[i+1:], true
	}
	return text, "", false
}

// Format writes what String returns.
func (a Address) Format(f fmt.State, verb rune) {
	text := a.String()
	if verb == 'q' {
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(f, text)
}

// MarshalText returns what String returns.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText sets the address.
func (a *Address) UnmarshalText(text []byte) error {
	*a = Address(text)
	return nil
}

// LogValue returns what String returns.
func (a Address) LogValue() slog.Value { return slog.StringValue(a.String()) }
