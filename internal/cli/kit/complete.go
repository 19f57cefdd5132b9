package kit

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
)

const (
	// completesWithin is how long a shell waits for the names of what is stored.
	completesWithin = 2 * time.Second
	// mostCompleted is how many names a shell is given at most.
	mostCompleted = 200
)

// completes are the arguments and flags whose values are names of what is stored, each with what it names.
var completes = map[string]lister{
	"ENTITY": entityIDs, "ID": entityIDs, "--entity": entityIDs, "--parent": entityIDs,
	"RESOURCE": resourceNames, "--resource": resourceNames,
	"PLAN": planNames, "--plan": planNames,
	"--group":    groupNames, // see also OnGroups
	"--manifest": manifestNames,
}

// families are the commands whose argument names one of their kind.
var families = map[string]lister{"group": groupNames, "namespace": namespaceNames}

// files are the placeholders of arguments and flags whose values are files or folders.
var files = []string{"FILE", "DIR", "LOG", "ARCHIVE"}

// otherwise returns how a shell completes what has the placeholder, and is neither stored nor one of a few values.
func otherwise(placeholder string) cobra.ShellCompDirective {
	if slices.Contains(files, placeholder) {
		return cobra.ShellCompDirectiveDefault
	}
	return cobra.ShellCompDirectiveNoFileComp
}

// completeGlobal lets shells complete the values of the flags that all commands have.
func completeGlobal(r *Run, root *cobra.Command) {
	formats := cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)
	_ = root.RegisterFlagCompletionFunc("output", formats) // fails only for unknown flags
	completeStored(r, root, "namespace", namespaceNames)
}

// lister returns names of what is stored that begin with a prefix.
type lister func(ctx context.Context, c api.Caller, prefix string) ([]string, error)

// completeStored lets shells complete a flag with names of what is stored.
func completeStored(r *Run, cmd *cobra.Command, flag string, of lister) {
	_ = cmd.RegisterFlagCompletionFunc(flag, // fails only for unknown flags
		func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return stored(r, cmd, of, prefix)
		})
}

func entityIDs(ctx context.Context, c api.Caller, prefix string) ([]string, error) {
	q := &api.EntityQuery{Prefix: prefix, Page: api.Page{Max: mostCompleted}}
	all, _, err := All(ctx, c, api.ListEntities, q, nil)
	return namesOf(all, prefix, func(e *api.Entity) string { return e.ID }), err
}

func resourceNames(ctx context.Context, c api.Caller, prefix string) ([]string, error) {
	all, _, err := All(ctx, c, api.ListResources, &api.Page{}, nil)
	return namesOf(all, prefix, func(l **api.Limits) string { return (*l).Resource }), err
}

func planNames(ctx context.Context, c api.Caller, prefix string) ([]string, error) {
	all, _, err := All(ctx, c, api.ListPlans, &api.Page{}, nil)
	return namesOf(all, prefix, func(l **api.Limits) string { return (*l).Plan }), err
}

func groupNames(ctx context.Context, c api.Caller, prefix string) ([]string, error) {
	all, _, err := All(ctx, c, api.ListResources, &api.Page{}, nil)
	return namesOf(all, prefix, func(l **api.Limits) string { return (*l).Group }), err
}

func manifestNames(ctx context.Context, c api.Caller, prefix string) ([]string, error) {
	all, _, err := All(ctx, c, api.ListRevisions, &api.RevisionQuery{}, nil)
	return namesOf(all, prefix, func(r *admin.Revision) string { return r.Manifest }), err
}

func namespaceNames(ctx context.Context, c api.Caller, prefix string) ([]string, error) {
	all, _, err := All(ctx, c, api.ListNamespaces, &api.NamespaceQuery{}, nil)
	return namesOf(all, prefix, func(n *admin.Namespace) string { return n.Name }), err
}

// namesOf returns the names that begin with a prefix, sorted, each once.
func namesOf[T any](all []T, prefix string, name func(*T) string) (names []string) {
	for i := range all {
		if text := name(&all[i]); text != "" && strings.HasPrefix(text, prefix) {
			names = append(names, text)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), mostCompleted)]
}

// complete lets shells complete a command's arguments and flags: with the values that a flag may have, or the names of
// what is stored.
func (b *binding) complete(r *Run, cmd *cobra.Command) {
	type directive = cobra.ShellCompDirective
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, directive) {
		if len(b.args) == 0 || len(args) >= len(b.args) && !b.args[len(b.args)-1].many {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a := &b.args[min(len(args), len(b.args)-1)]
		of := completes[a.name]
		if family := families[cmd.Parent().Name()]; family != nil {
			of = family
		}
		switch {
		case a.name == "LIMIT=AMOUNT":
			limits := func(ctx context.Context, c api.Caller, prefix string) ([]string, error) {
				return limitsOf(ctx, c, args[0], args[1], prefix)
			}
			names, how := stored(r, cmd, limits, prefix)
			return names, how | cobra.ShellCompDirectiveNoSpace
		case of != nil:
			return stored(r, cmd, of, prefix)
		case len(a.field.Values()) > 0:
			return a.field.Values(), cobra.ShellCompDirectiveNoFileComp
		default:
			return nil, otherwise(a.name)
		}
	}
	for _, v := range b.flags {
		name := v.flag.Name
		switch of, values := completes["--"+name], v.field.Values(); {
		case len(values) > 0:
			fixed := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
			_ = cmd.RegisterFlagCompletionFunc(name, fixed)
		case of != nil:
			completeStored(r, cmd, name, of)
		default:
			placeholder, _ := pflag.UnquoteUsage(v.flag)
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(nil, otherwise(placeholder)))
		}
	}
}

// limitsOf returns the limits that apply to an entity on a resource, each followed by =.
func limitsOf(ctx context.Context, c api.Caller, entity, resource, prefix string) ([]string, error) {
	x, _, err := api.Explain.Call(ctx, c, &api.Question{Entity: entity, Resource: resource})
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range x.Chain {
		for j := range x.Chain[i].Limits {
			all = append(all, x.Chain[i].Limits[j].Limit+"=")
		}
	}
	return namesOf(all, prefix, func(name *string) string { return *name }), nil
}

// stored returns names of what is stored. It returns none if the store or server does not answer soon, or if only
// weir.yaml of the current folder names it: pressing a key in another's folder calls nobody.
func stored(
	a *Run, cmd *cobra.Command, of lister, prefix string,
) (names []string, how cobra.ShellCompDirective) {
	how = cobra.ShellCompDirectiveNoFileComp
	if configure(a, cmd) != nil || a.places["store"] == inFolder || a.places["server"] == inFolder {
		return nil, how
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completesWithin)
	defer cancel()
	err := a.Call(api.ListEntities.Op, func(c api.Caller) (err error) { // as for any other list
		names, err = of(ctx, c, prefix)
		return err
	})
	if err != nil {
		return nil, how
	}
	return names, how
}
