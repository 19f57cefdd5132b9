package api

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimits/weir"
)

// Preconditions are what must hold for a change: Match, that what it changes is still what it was based on, or
// NoneMatch, which must be *, that there is nothing yet.
type Preconditions struct {
	Match     []string `json:"If-Match" in:"header" flag:"if-match"`
	NoneMatch []string `json:"If-None-Match" in:"header" flag:"-"`
}

// ChangedError is the error of a change whose precondition does not hold. Nothing was changed.
type ChangedError struct{ Detail string }

// Error returns the detail.
func (e *ChangedError) Error() string { return e.Detail }

// tagOf returns the entity tag of a value: a hash of its JSON.
func tagOf(v any) string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(v) // cannot fail: it writes to memory
	return strconv.FormatUint(h.Sum64(), 16)
}

// given reports whether there are preconditions.
func (p *Preconditions) given() bool { return len(p.Match)+len(p.NoneMatch) > 0 }

// check checks the preconditions, if there are any. read returns the entity tag of what is to be changed, and stale and
// taken are the errors of a change that is based on something else, or on nothing.
func (p *Preconditions) check(read func() (string, error), stale, taken error) error {
	switch {
	case !p.given():
		return nil
	case len(p.Match) > 0 && len(p.NoneMatch) > 0:
		return &weir.ConfigError{Field: "If-Match", Reason: "and If-None-Match exclude each other"}
	case len(p.NoneMatch) > 1 || len(p.NoneMatch) == 1 && p.NoneMatch[0] != "*":
		return &weir.ConfigError{Field: "If-None-Match", Reason: "must be *: that there is nothing yet"}
	}
	tag, err := read()
	if err != nil && !errors.Is(err, weir.ErrNotFound) {
		return err
	}
	switch exists := err == nil; {
	case len(p.NoneMatch) > 0 && exists:
		return taken
	case len(p.Match) > 0 && (!exists || !slices.Contains(tags(p.Match), "*") && !slices.Contains(tags(p.Match), tag)):
		return stale
	}
	return nil
}

// Unchanged reports whether If-None-Match names the entity tag, so that a client that reads need not be sent what it
// has already.
func Unchanged(noneMatch []string, tag string) bool {
	all := tags(noneMatch)
	return slices.Contains(all, tag) || slices.Contains(all, "*") || slices.Contains(all, "W/\""+tag)
}

// tags returns the entity tags of a header, without quotation marks.
func tags(values []string) (all []string) {
	for tag := range strings.SplitSeq(strings.Join(values, ","), ",") {
		all = append(all, strings.Trim(strings.TrimSpace(tag), `"`))
	}
	return all
}
