package limits

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest"
)

// touchesText says how many buckets a change touches, and which would be over their limits at once.
func touchesText(c *manifest.Change) string {
	t := c.Touches
	if t.Buckets == 0 {
		if t.AtLeast {
			return "touches none of the first 1000 live buckets; to check the rest, use --exact"
		}
		return "touches no live bucket"
	}
	least := ""
	if t.AtLeast {
		least = "at least "
	}
	text := fmt.Sprintf(
		"touches %s%s of %s; ", least, kit.Plural(t.Buckets, "live bucket"), kit.Plural(t.Entities, "entity"),
	)
	switch {
	case t.Over == 0 && t.Buckets == 1:
		return text + "it would not be over its limits"
	case t.Over == 0:
		return text + "none of these would be over its limits at once"
	}
	var names []string
	for _, o := range t.OverSome {
		if !slices.Contains(names, o.Entity) {
			names = append(names, o.Entity)
		}
	}
	if t.Over > len(t.OverSome) {
		names = append(names, "…")
	}
	return fmt.Sprintf("%s%s%d would be over %s at once, and refused until %s drained: %s",
		text, least, t.Over, strings.Join(overNames(c, t.OverLimits), " or "), has(t.Over), strings.Join(names, ", "))
}

func has(n int) string {
	if n == 1 {
		return "it has"
	}
	return "they have"
}

// overNames names the limits that would be exceeded, with burst added if the burst is what changes.
func overNames(c *manifest.Change, limits []string) []string {
	var names []string
	for _, l := range limits {
		for _, f := range append(slices.Clone(c.Fields), c.Applies...) {
			if f.Limit == l && f.Name == "burst" {
				l += " burst"
				break
			}
		}
		names = append(names, l)
	}
	return names
}

// maxOver is the maximum number of over-limit buckets that are named.
const maxOver = 10

// overText summarizes which buckets would be over their limits at once.
func overText(p *manifest.Plan) string {
	total, limits, atLeast := 0, false, false
	var names []string
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Touches == nil {
			continue
		}
		limits, atLeast = true, atLeast || c.Touches.AtLeast
		total += c.Touches.Over
		for _, o := range c.Touches.OverSome {
			if len(names) < maxOver {
				names = append(
					names,
					fmt.Sprintf("%s on %s (%s)", o.Entity, o.Resource, strings.Join(overNames(c, o.Limits), ", ")),
				)
			}
		}
	}
	switch {
	case !limits:
		return ""
	case total == 0 && atLeast:
		return "None of the buckets checked would be over its limits at once; to check all, use --exact."
	case total == 0:
		return "No bucket would be over its limits at once."
	}
	if total > len(names) {
		names = append(names, "…")
	}
	text := fmt.Sprintf(
		"%d would be over at once, and refused until %s drained: %s.", total, has(total), strings.Join(names, ", "),
	)
	if atLeast {
		return "At least " + text
	}
	return text
}
