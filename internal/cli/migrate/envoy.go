package migrate

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// envoyRequest names the files of a configuration.
type envoyRequest struct {
	Files   []string `json:"file"`
	Mapping string   `json:"mapping" required:"true"`
	Out     string   `json:"out"`
}

func envoyCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "envoy FILE...", Short: "Write a manifest and a mapping from envoyproxy/ratelimit's configuration",
		Long: `Writes the limits in the configuration of envoyproxy/ratelimit as a manifest of the namespace,
and the mapping by which weir serve finds them for Envoy's descriptors. Each descriptor with a
limit becomes a resource with that limit, such as edge/path=v1/user, on which each user is
an entity. What weir cannot do in the same way is named in comments and on standard error.`,
		Example: "  weir import envoy config.yaml --mapping mapping.yaml --out limits.yaml",
	}, func(_ context.Context, q *envoyRequest) error {
		sources, err := strictyaml.Open(q.Files, a.In)
		if err != nil {
			return err
		}
		domains, err := readRatelimit(sources)
		if err != nil {
			return kit.Mistakes(a, err)
		}
		m := newRatelimit(a.Namespace)
		for _, d := range domains {
			m.domain(d)
		}
		mapping := m.mapping.String()
		err = output(a, q.Out, "the configuration of envoyproxy/ratelimit", mapping, []*imported{&m.imported})
		if err != nil {
			return err
		}
		return os.WriteFile(q.Mapping, []byte(mapping), 0o600)
	})
}

// descriptor is a descriptor of the configuration.
type descriptor struct {
	key, value string // no value stands for any
	limit      *ratelimit
	below      []*descriptor
	shadow     bool
	shared     bool     // the values that a prefix matches have one counter together
	others     []string // keys that are not imported
}

// ratelimit is the limit of a descriptor.
type ratelimit struct {
	unit      string
	requests  int64
	unlimited bool
	replaces  bool
}

// rank orders descriptors by how narrowly they match: a value, a prefix of it, any value.
func (d *descriptor) rank() int {
	switch {
	case d.value == "":
		return 2
	case strings.HasSuffix(d.value, "*"):
		return 1
	}
	return 0
}

// text is the descriptor as a mapping and a resource name it.
func (d *descriptor) text() string {
	if d.value == "" {
		return d.key
	}
	return d.key + "=" + d.value
}

// ratelimitDomain is a domain of the configuration.
type ratelimitDomain struct {
	name  string
	below []*descriptor
}

// readRatelimit reads a configuration. Domains of the same name are one. Mistakes are [strictyaml.Errors].
func readRatelimit(sources []strictyaml.Source) (domains []*ratelimitDomain, err error) {
	var readers []*strictyaml.Reader
	for i := range sources {
		r := strictyaml.New(&sources[i], strictyaml.Options{})
		readers = append(readers, r)
		r.Documents("a configuration needs at least: domain: NAME", func(root *yaml.Node) {
			read := &ratelimitDomain{}
			r.Fields(root, "", []string{"domain", "descriptors"}, func(key string, v *yaml.Node) {
				if key == "descriptors" {
					read.below = readDescriptors(r, v, key)
					return
				}
				read.name, _, _ = r.Scalar(v, key, "text")
			})
			if read.name == "" {
				r.Bad(root, "", "add domain: NAME", "domain is missing")
			}
			if i := slices.IndexFunc(domains, func(d *ratelimitDomain) bool { return d.name == read.name }); i >= 0 {
				domains[i].below = append(domains[i].below, read.below...)
				return
			}
			domains = append(domains, read)
		})
	}
	return domains, strictyaml.Mistakes(readers)
}

func readDescriptors(r *strictyaml.Reader, n *yaml.Node, path string) (all []*descriptor) {
	r.List(n, path, func(at string, v *yaml.Node) {
		d := &descriptor{}
		ok := r.Mapping(v, at, func(key string, _, v *yaml.Node) {
			at := at + "." + key
			switch key {
			case "key":
				d.key, _, _ = r.Scalar(v, at, "text")
			case "value":
				d.value, _, _ = r.Scalar(v, at, "text")
			case "descriptors":
				d.below = readDescriptors(r, v, at)
			case "rate_limit":
				d.limit = readLimit(r, d, v, at)
			case "shadow_mode":
				d.shadow, _ = r.Truth(v, at)
			case "share_threshold":
				d.shared, _ = r.Truth(v, at)
			default:
				d.others = append(d.others, key)
			}
		})
		if ok && d.key == "" {
			r.Bad(v, at, "", "has no key")
		}
		all = append(all, d)
	})
	return all
}

// units are the units of a limit, each with the name and the text form of weir's.
var units = map[string][2]string{
	"second": {"rps", "s"}, "minute": {"rpm", "min"}, "hour": {"rph", "h"}, "day": {"rpd", "day@UTC"},
	"week": {"requests", "week@UTC"}, "month": {"requests", "month@UTC"}, "year": {"requests", "year@UTC"},
}

func readLimit(r *strictyaml.Reader, d *descriptor, n *yaml.Node, path string) *ratelimit {
	l := &ratelimit{}
	r.Mapping(n, path, func(key string, _, v *yaml.Node) {
		at := path + "." + key
		switch key {
		case "unit":
			l.unit, _ = r.Text(v, at)
			if l.unit = strings.ToLower(l.unit); units[l.unit][0] == "" {
				r.Bad(v, at, "allowed: second, minute, hour, day, week, month, year", "is no unit")
			}
		case "requests_per_unit":
			if text, _, _ := r.Scalar(v, at, "a number"); text != "0" {
				l.requests, _ = r.Count(v, at)
			}
		case "unlimited":
			l.unlimited, _ = r.Truth(v, at)
		case "name":
		case "replaces":
			l.replaces = true
		default:
			d.others = append(d.others, "rate_limit."+key)
		}
	})
	if l.unit == "" && !l.unlimited {
		r.Bad(n, path, "add unit: minute, or unlimited: true", "has no unit")
	}
	return l
}

func newRatelimit(namespace string) *ratelimitManifest {
	m := &ratelimitManifest{imported: imported{Manifest: &manifest.Manifest{
		Namespace: namespace, Name: manifest.DefaultName, Records: make(map[manifest.Key]*manifest.Record),
	}}}
	m.mapping.WriteString("# Imported from envoyproxy/ratelimit, for weir serve --envoy-mapping.\ndomains:\n")
	return m
}
