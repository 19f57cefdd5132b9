package stack

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

var (
	word   = regexp.MustCompile(`([a-z])([A-Z])`)
	digits = regexp.MustCompile(`[0-9]+$`)
)

// Flag returns the name of the parameter's flag: read-min for ReadMin, aggregator-role for AggregatorRoleArn, and
// client-group for all of ClientGroup1 to ClientGroup5. It returns "" if the program computes the value.
func (p *Parameter) Flag() string {
	if !strings.Contains(p.Description, "`") && !p.truth() {
		return ""
	}
	name := strings.TrimSuffix(digits.ReplaceAllString(p.Name, ""), "Arn")
	return strings.ToLower(word.ReplaceAllString(name, "$1-$2"))
}

func (p *Parameter) truth() bool { return len(p.Values) == 2 && p.Values[0] == "true" }

// Flags adds a flag for each parameter that has none yet.
func (t *Template) Flags(flags *pflag.FlagSet) {
	for _, p := range t.Parameters {
		name := p.Flag()
		switch {
		case name == "" || flags.Lookup(name) != nil:
		case p.truth():
			flags.Bool(name, p.Default == "true", p.Description)
		case strings.HasSuffix(p.Description, "; repeatable"):
			flags.StringArray(name, nil, p.Description)
		case p.Type == "Number":
			n, _ := strconv.Atoi(p.Default) // tests check the templates
			flags.Int(name, n, p.usage())
		default:
			flags.String(name, p.Default, p.Description)
		}
	}
}

// HasFlag reports whether a parameter has that flag.
func (t *Template) HasFlag(name string) bool {
	return slices.ContainsFunc(t.Parameters, func(p Parameter) bool { return p.Flag() == name })
}

// usage is the description of a number with its range.
func (p *Parameter) usage() string {
	if p.Most == 0 {
		return p.Description
	}
	before, after, _ := strings.Cut(p.Description, ";")
	text := fmt.Sprintf("%s, %g to %.0f", before, p.Least, p.Most)
	if after != "" {
		text += ";" + after
	}
	return text
}

// Given returns the values of the flags that were given.
func (t *Template) Given(flags *pflag.FlagSet) (Values, error) {
	given := make(Values)
	lists := make(map[string][]string)
	for _, p := range t.Parameters {
		f := flags.Lookup(p.Flag())
		if f == nil || !f.Changed {
			continue
		}
		list, many := f.Value.(pflag.SliceValue)
		switch numbered := digits.MatchString(p.Name); {
		case !many:
			given[p.Name] = f.Value.String()
		case !numbered:
			given[p.Name] = strings.Join(list.GetSlice(), ",")
		default: // one value for each number
			if _, begun := lists[f.Name]; !begun {
				lists[f.Name] = list.GetSlice()
			}
			given[p.Name] = ""
			if left := lists[f.Name]; len(left) > 0 {
				given[p.Name], lists[f.Name] = left[0], left[1:]
			}
		}
	}
	for name, left := range lists {
		if len(left) > 0 {
			return nil, fmt.Errorf("--%s: %d too many are given", name, len(left))
		}
	}
	return given, nil
}
