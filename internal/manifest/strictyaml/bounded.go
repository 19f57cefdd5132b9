package strictyaml

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// BoundedKeys are the keys of limits that begin or end.
var BoundedKeys = []string{"from", "until", "scale", "limits"}

// Bounded reads limits of a scope that begin or end, a list, given the limits that they cover. Whether they have ended
// does not matter.
func (r *Reader) Bounded(n *yaml.Node, path string, of admin.ScopedLimits) (all []admin.Bounded, good bool) {
	n = r.Follow(n)
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		r.Bad(n, path, "write [{until: 2026-12-04T18:00@Europe/Berlin, scale: 10}], or limits instead of scale",
			"is not a list of limits that begin or end")
		return nil, false
	}
	good = true
	var at []*yaml.Node
	r.List(n, path, func(path string, v *yaml.Node) {
		b, ok := r.bounded(v, path)
		if ok {
			ok = r.fits(v, path, of, append(slices.Clone(all), b), at)
			all, at = append(all, b), append(at, r.Follow(v))
		}
		good = good && ok
	})
	slices.SortFunc(all, func(a, b admin.Bounded) int { return a.From.Time().Compare(b.From.Time()) })
	return all, good
}

// fits reports whether the last of some limits is right in its scope, and beside the others, which are at some nodes.
func (r *Reader) fits(n *yaml.Node, path string, of admin.ScopedLimits, all []admin.Bounded, at []*yaml.Node) bool {
	var bad *weir.ConfigError
	last := len(all) - 1
	if of.Bounded = all[last:]; errors.As(of.Validate(), &bad) {
		r.Bad(r.Follow(n), path, "", "%s", bad)
		return false
	}
	for i := range last {
		if of.Bounded = []admin.Bounded{all[i], all[last]}; errors.As(of.Validate(), &bad) {
			reason, hint, _ := strings.Cut(bad.Reason, ": ")
			r.Bad(r.Follow(n), path, fmt.Sprintf("%s; these are in line %d", hint, at[i].Line), "%s", reason)
			return false
		}
	}
	if of.Bounded = all; last > 0 && errors.As(of.Validate(), &bad) {
		r.Bad(r.Follow(n), path, "", "%s", bad)
		return false
	}
	return true
}

func (r *Reader) bounded(n *yaml.Node, path string) (b admin.Bounded, good bool) {
	good = true
	isMap := r.Fields(n, path, BoundedKeys, func(key string, v *yaml.Node) {
		var ok bool
		at := path + "." + key
		switch key {
		case "from":
			b.From, ok = r.instant(v, at)
		case "until":
			b.Until, ok = r.instant(v, at)
		case "scale":
			b.Scale, ok = r.Count(v, at)
		default:
			b.Limits, ok = r.Limits(v, at)
		}
		good = good && ok
	})
	return b, good && isMap
}

// instant reads a time with its zone.
func (r *Reader) instant(n *yaml.Node, path string) (i admin.Instant, ok bool) {
	const hint = "write 2026-12-04T18:00@Europe/Berlin or 2026-12-04T17:00:00Z"
	s, ok := r.scalar(n, path, "a time")
	if !ok {
		return i, false
	}
	if s.tag != "!!str" && s.tag != "!!timestamp" {
		r.Not(n, path, hint, "a time")
		return i, false
	}
	err := i.UnmarshalText([]byte(s.text))
	if err == nil && i.IsZero() {
		err = errors.New("is empty")
	}
	if err != nil {
		reason, _, cut := strings.Cut(err.Error(), ": write ")
		h := ""
		if cut {
			h = hint
		}
		r.Bad(r.Follow(n), path, h, "%s", reason)
	}
	return i, err == nil
}

// FormatBounded returns limits that begin or end as a list.
func FormatBounded(all []admin.Bounded) string {
	items := make([]string, len(all))
	for i, b := range all {
		var parts []string
		put := func(key, value string) { parts = append(parts, key+": "+value) }
		if !b.From.IsZero() {
			put("from", scalarText(b.From.String()))
		}
		if !b.Until.IsZero() {
			put("until", scalarText(b.Until.String()))
		}
		if b.Scale != 0 {
			put("scale", strconv.FormatInt(b.Scale, 10))
		}
		if len(b.Limits) > 0 {
			var limits []string
			for _, l := range slices.SortedFunc(slices.Values(b.Limits), byName) {
				limits = append(limits, scalarText(l.Name)+": "+FormatLimit(l))
			}
			put("limits", "{"+strings.Join(limits, ", ")+"}")
		}
		items[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(items, ", ") + "]"
}
