package limits

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest"
)

// touchesText describes how many buckets a change touches, and which would be over their limits at once.
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

// overText counts the buckets that would be over their limits at once. The changes name some of them.
func overText(p *manifest.Plan) string {
	total, limits, atLeast := 0, false, false
	for i := range p.Changes {
		if t := p.Changes[i].Touches; t != nil {
			limits, atLeast, total = true, atLeast || t.AtLeast, total+t.Over
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
	least := ""
	if atLeast {
		least = "at least "
	}
	return fmt.Sprintf("Over at once, and refused until drained: %s%s.", least, kit.Plural(total, "bucket"))
}
