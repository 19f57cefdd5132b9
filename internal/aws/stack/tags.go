package stack

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
)

// The tags of every stack of weir's, which CloudFormation passes on to its resources.
const (
	TagStack   = "weir:stack"
	TagVersion = "weir:version"
)

// maxTags is the maximum number of a user's own tags; weir and AWS need some.
const maxTags = 45

var tagText = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+@-]*$`)

// AllTags returns all tags of a stack: the user's, and weir's own.
func AllTags(name, version string, own map[string]string) map[string]string {
	all := map[string]string{TagStack: name}
	version = strings.Map(func(r rune) rune {
		if !tagText.MatchString(string(r)) {
			return -1
		}
		return r
	}, version)
	if version != "" {
		all[TagVersion] = version
	}
	maps.Copy(all, own)
	return all
}

// CheckTags rejects tags that AWS would refuse. The error is a [*ValueError].
func CheckTags(own map[string]string) error {
	bad := func(format string, args ...any) error { return &ValueError{fmt.Errorf(format, args...)} }
	if len(own) > maxTags {
		return bad("--tag: %d tags, at most %d are allowed", len(own), maxTags)
	}
	for k, v := range own {
		switch {
		case k == "" || len(k) > 128 || len(v) > 256:
			return bad("--tag %s=%s: a key has 1 to 128 characters, a value at most 256", k, v)
		case !tagText.MatchString(k) || !tagText.MatchString(v):
			return bad("--tag %s=%s: may contain only letters, digits, spaces and _ . : / = + - @", k, v)
		case strings.HasPrefix(strings.ToLower(k), "aws:") || strings.HasPrefix(k, "weir:"):
			return bad("--tag %s: aws: and weir: are reserved, use another key", k)
		}
	}
	return nil
}
