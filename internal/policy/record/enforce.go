package record

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"
)

// Enforce is weir.Enforce: it selects the entities that a limit refuses, all (the zero value), none ([EnforceShadow]),
// or a percentage from 1 to 99.
type Enforce int8

// Values of Enforce other than percentages.
const (
	EnforceOn     Enforce = 0
	EnforceShadow Enforce = -1
)

// ParseEnforce parses on, shadow, or a percentage from 1% to 99%.
func ParseEnforce(text string) (Enforce, error) {
	switch text {
	case "on":
		return EnforceOn, nil
	case "shadow":
		return EnforceShadow, nil
	}
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	if !percent || err != nil || digits != strconv.Itoa(n) || n < 1 || n > 99 {
		return 0, Invalid("enforce", "must be on, shadow, or 1%% to 99%%: %q", text)
	}
	return Enforce(n), nil
}

// String returns the text that [ParseEnforce] reads.
func (e Enforce) String() string {
	switch e {
	case EnforceOn:
		return "on"
	case EnforceShadow:
		return "shadow"
	}
	return strconv.Itoa(int(e)) + "%"
}

// MarshalText returns what String returns.
func (e Enforce) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText parses what [ParseEnforce] does.
func (e *Enforce) UnmarshalText(text []byte) (err error) {
	*e, err = ParseEnforce(string(text))
	return err
}

func (e Enforce) valid() bool { return e >= EnforceShadow && e <= 99 }

// Covers reports whether a limit with this name refuses requests of an entity: for a percentage, if the first eight
// bytes of SHA-256(id, a zero byte, name), as a big-endian number modulo 100, are below it.
func (e Enforce) Covers(entity, limit string) bool {
	if e == EnforceOn || e == EnforceShadow {
		return e == EnforceOn
	}
	sum := sha256.Sum256([]byte(entity + "\x00" + limit))
	return binary.BigEndian.Uint64(sum[:8])%100 < uint64(e)
}
