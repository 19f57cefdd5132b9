package manifest

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/policy/record"
)

// boundedMember are limits that begin or end. It is read after the limits that they cover.
var boundedMember = member{
	key: "bounded", block: true,
	decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) (ok bool) {
		r.Limits.Bounded, ok = d.Bounded(n, path, *r.Limits)
		return ok
	},
	encode: func(w *strictyaml.Writer, depth int, r *admin.Declared) {
		if len(r.Limits.Bounded) > 0 {
			w.Line(depth, "bounded", strictyaml.FormatBounded(r.Limits.Bounded))
		}
	},
	diff: func(old, set *admin.Declared) []delta.Field {
		return delta.Bounded(old.Limits.Bounded, set.Limits.Bounded)
	},
}

// untimely warns of declared limits that have ended, and of local times that occur twice.
func untimely(k Key, r *Record, now time.Time) (all []string) {
	if r.Limits == nil {
		return nil
	}
	for i := range r.Limits.Bounded {
		b := &r.Limits.Bounded[i]
		if b.Ended(now) {
			all = append(all, fmt.Sprintf("of %s (%s), the limits %s have ended: remove them from the manifest",
				k, r.at, (&record.Bounded{From: b.From, Until: b.Until}).Span()))
			continue
		}
		for _, t := range []admin.Instant{b.From, b.Until} {
			if second, twice := t.Second(); twice {
				all = append(all, fmt.Sprintf("of %s (%s), the local time %s occurs twice, and is the first: "+
					"write %s for the second", k, r.at, t, second))
			}
		}
	}
	return all
}
