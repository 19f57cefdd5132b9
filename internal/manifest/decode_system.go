package manifest

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
)

var systemKeys = []string{"limits", "on_unavailable", "near_limit"}

func (d *decoder) system(n *yaml.Node, add adder) {
	sl := &weir.ScopedLimits{Source: weir.SourceSystem}
	good, given := true, false
	isMap := d.fields(n, "system", systemKeys, func(key string, v *yaml.Node) {
		given = true
		var ok bool
		switch key {
		case "limits":
			sl.Limits, ok = d.limits(v, "system.limits")
		case "on_unavailable":
			sl.OnUnavailable, ok = d.onUnavailable(v, "system.on_unavailable")
		case "near_limit":
			sl.NearLimit, ok = d.nearLimit(v, "system.near_limit")
		}
		good = good && ok
	})
	n = d.follow(n)
	switch {
	case isMap && len(n.Content) == 0:
		d.bad(n, "system", "allowed: "+strings.Join(systemKeys, ", "), "declares nothing")
	case isMap && given && good:
		add(Key{}, n, &Record{Limits: sl})
	}
}

var unavailables = []string{"deny", "allow", "local"}

func (d *decoder) onUnavailable(n *yaml.Node, path string) (weir.Unavailable, bool) {
	text, ok := d.text(n, path)
	if ok && !slices.Contains(unavailables, text) {
		d.bad(d.follow(n), path, hint(text, unavailables), "%s is unknown", quote(text))
		return "", false
	}
	return weir.Unavailable(text), ok
}

// nearLimit reads percentages; an empty list means none. The schema cannot express that they must ascend.
func (d *decoder) nearLimit(n *yaml.Node, path string) (weir.Thresholds, bool) {
	n = d.follow(n)
	if n.Kind != yaml.SequenceNode {
		d.bad(n, path, "write percentages, such as [80, 95], or [] for none", "is %s, not a list", kindOf(n))
		return nil, false
	}
	t, good := make(weir.Thresholds, len(n.Content)), true
	for i, v := range n.Content {
		if d.tired() {
			return nil, false
		}
		at := path + "[" + strconv.Itoa(i) + "]"
		p, ok := d.count(v, at)
		if p > 100 {
			d.bad(d.follow(v), at, "", "%d is not a percentage from 1 to 100", p)
			ok = false
		}
		t[i], good = int(p), good && ok
	}
	var bad *weir.ConfigError
	if err := t.Validate(); good && errors.As(err, &bad) {
		d.bad(n, path, "", "%s", bad.Reason)
		return nil, false
	}
	return t, good
}
