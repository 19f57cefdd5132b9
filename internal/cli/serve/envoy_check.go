package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/envoy"
)

// EnvoyCmd returns weir envoy.
func EnvoyCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{Use: "envoy", Short: "Check how Envoy's descriptors map to entities and limits"},
		envoyCheckCmd(a))
}

// envoyCheck selects a mapping, and descriptors to try.
type envoyCheck struct {
	File        string   `json:"file" flag:"file,f"`
	Domain      string   `json:"domain"`
	Descriptors []string `json:"descriptor"`
}

func envoyCheckCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "check", Short: "Check a mapping file, and show what descriptors map to",
		Long: `Reads a mapping as weir serve --envoy-mapping does. If you give a domain and descriptors, it
shows which tokens they would spend, of which entity and on which resource; without -f, the
built-in rule applies. The command opens no store.`,
		Example: `  weir envoy check -f mapping.yaml
  weir envoy check -f mapping.yaml --domain edge --descriptor tenant=acme,user=alice`,
	}, func(_ context.Context, q *envoyCheck) error {
		if (q.Domain == "") != (len(q.Descriptors) == 0) {
			return kit.Usage(errors.New("--domain and --descriptor must be used together"))
		}
		if q.File == "" && q.Domain == "" {
			return kit.Usage(errors.New("give a mapping with -f, or --domain and --descriptor"))
		}
		var m *envoy.Mapping
		if q.File != "" {
			var err error
			if m, err = readMapping(q.File); err != nil {
				return kit.Mistakes(a, err)
			}
		}
		return printTargets(a, m, q)
	})
}

// targetView is what a descriptor maps to, as printed.
type targetView struct {
	Descriptor string `json:"descriptor"`
	Known      bool   `json:"known"`
	Namespace  string `json:"namespace,omitempty"`
	Entity     string `json:"entity,omitempty"`
	Resource   string `json:"resource,omitempty"`
	Tokens     string `json:"tokens,omitempty"`
	Forced     bool   `json:"forced,omitempty"`
	Rule       int    `json:"rule"` // number in the domain, from 1; 0 for the built-in rule
}

func printTargets(a *kit.Run, m *envoy.Mapping, q *envoyCheck) error {
	views := []targetView{}
	namespace, _ := m.Namespace(q.Domain)
	namespace = cmp.Or(namespace, a.Namespace)
	for _, text := range q.Descriptors {
		d, err := envoy.ParseDescriptor(text)
		if err != nil {
			return err
		}
		v := targetView{Descriptor: text}
		if t, ok := m.Target(q.Domain, d); ok {
			v.Known, v.Namespace = true, namespace
			v.Entity, v.Resource, v.Tokens, v.Forced, v.Rule = t.Entity, t.Resource, t.Tokens(), t.Forced, t.Rule
		}
		views = append(views, v)
	}
	return a.Print(map[string]any{"valid": true, "targets": views}, func() {
		if len(views) == 0 {
			a.Out.Printf("%s is valid\n", q.File)
		}
		for _, v := range views {
			if !v.Known {
				a.Out.Printf("%s is unknown: admitted\n", v.Descriptor)
				continue
			}
			rule := "by the built-in rule"
			if v.Rule > 0 {
				rule = fmt.Sprintf("by rule %d", v.Rule)
			}
			if v.Forced {
				rule += ", counted even if it does not fit"
			}
			a.Out.Printf("%s spends %s of entity %s on resource %s in namespace %s, %s\n",
				v.Descriptor, v.Tokens, a.Out.Bold(v.Entity), a.Out.Bold(v.Resource), v.Namespace, rule)
		}
	})
}
