package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
)

// kept are the members that weir keeps for itself, or that other columns show.
var kept = []string{"at", "by", "created", "created_at", "hash", "id", "source", "updated_at"}

// change returns what an event changed, for people: "rpm 60/min → 120/min, +tpm 50K/min, -name Alice".
func change(e *api.Event) any {
	before, after := flat(e.Before), flat(e.After)
	all := maps.Clone(before)
	maps.Copy(all, after)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		old, was := before[name]
		set, is := after[name]
		switch {
		case was && is && old == set, slices.Contains(kept, name[strings.LastIndex(name, ".")+1:]):
		case was && is:
			parts = append(parts, name+" "+old+" → "+set)
		case all[name] == "false" || slices.Contains(strings.FieldsFunc(e.Subject, apart), all[name]):
		case is:
			parts = append(parts, "+"+name+" "+set)
		default:
			parts = append(parts, "-"+name+" "+old)
		}
	}
	return strings.Join(parts, ", ")
}

// apart reports whether a rune separates the names in a subject.
func apart(r rune) bool { return strings.ContainsRune(":#", r) }

// flat returns the members of a JSON object as texts: of a limit by its name, of an object in it by a path. It is empty
// for null.
func flat(text json.RawMessage) map[string]string {
	members := make(map[string]string)
	if len(text) > 0 && string(text) != "null" {
		flatten(members, "", text)
	}
	return members
}

func flatten(members map[string]string, path string, text json.RawMessage) {
	var object map[string]json.RawMessage
	var list []json.RawMessage
	var word string
	switch {
	case json.Unmarshal(text, &list) == nil && len(list) > 0 && list[0][0] == '{':
		for i, item := range list {
			flatten(members, fmt.Sprintf("%s[%d]", path, i), item)
		}
	case json.Unmarshal(text, &object) == nil:
		for name, value := range object {
			var limits []json.RawMessage
			if name == "limits" && json.Unmarshal(value, &limits) == nil {
				for _, l := range limits {
					flattenLimit(members, path, l)
				}
				continue
			}
			flatten(members, strings.TrimPrefix(path+"."+name, "."), value)
		}
	case json.Unmarshal(text, &word) == nil:
		members[path] = word
	default:
		members[path] = string(text)
	}
}

// flattenLimit adds a limit's text, such as 60/min, by its name, and what the text leaves out.
func flattenLimit(members map[string]string, path string, text json.RawMessage) {
	var l weir.Limit
	var left struct { // of a bucket
		Limit     weir.Limit
		Available int64
	}
	if json.Unmarshal(text, &left) == nil && left.Limit.Name != "" {
		members[left.Limit.Name+" available"] = strconv.FormatInt(left.Available, 10)
		return
	}
	if json.Unmarshal(text, &l) != nil { // of another version
		members[strings.TrimPrefix(path+".limits", ".")] += string(text)
		return
	}
	at := strings.TrimPrefix(path+"."+l.Name, ".")
	rest := flat(text)
	maps.DeleteFunc(rest, func(name, _ string) bool {
		return !slices.Contains([]string{"enforce", "max_debt", "returns"}, name) && !strings.HasPrefix(name, "former")
	})
	for name, value := range rest {
		members[at+"."+name] = value
	}
	members[at] = strings.TrimPrefix(l.String(), l.Name+":")
}
