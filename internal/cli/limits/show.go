package limits

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/store"
)

var signs = map[manifest.Action]string{
	manifest.Create: "+", manifest.Update: "~", manifest.Delete: "-", manifest.Adopt: ">",
	manifest.Move: ">", manifest.Release: "<",
}

// line prints a line, without control characters.
func line(a *kit.Run, format string, args ...any) {
	a.Out.Println(term.Clean(fmt.Sprintf(format, args...)))
}

// count is a number of what was or will be done.
type count struct {
	n    int
	what string
}

// counted lists the first three counts, and those of the others that are not 0.
func counted(all ...count) string {
	var parts []string
	for i, c := range all {
		if i < 3 || c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(parts, ", ")
}

// printPlan prints the changes in a plan, with a note in its title.
func printPlan(a *kit.Run, p *manifest.Plan, note string) {
	a.Out.Println(a.Out.Bold("Plan for " + titleOf(p.Namespace, p.Manifest) + "." + note))
	if p.CreateNamespace {
		a.Out.Println("The namespace does not exist and will be created.")
	}
	printOngoing(a, p.Rollout)
	for i := range p.Changes {
		printChange(a, &p.Changes[i])
	}
	if len(p.Changes) > 0 {
		a.Out.Println()
	}
	printPlanTotals(a, p)
}

// printOngoing prints the stage of an unfinished rollout, and what comes next.
func printOngoing(a *kit.Run, o *manifest.Ongoing) {
	switch {
	case o == nil:
	case o.Same:
		next := 100
		for _, percent := range slices.Backward(o.Terms.Stages) {
			if percent > o.Percent {
				next = percent
			}
		}
		line(a, "A rollout of it is unfinished, at %d%%, the next stage is %d%%: apply continues it, %s.", o.Percent,
			next, termsText(o.Terms))
	default:
		line(a, "A rollout of another version (%s) is unfinished, at %d%%: apply ends it, for all entities at once.",
			shortHash(o.Hash), o.Percent)
	}
}

func titleOf(namespace, name string) string {
	title := "namespace " + term.Clean(namespace)
	if name != manifest.DefaultName {
		title += ", manifest " + term.Clean(name)
	}
	return title
}

// headOf names what a change affects: an entity, or the limits of something.
func headOf(target string, own bool, on admin.Scope) string {
	switch {
	case own:
		return target
	case on == (admin.Scope{}):
		return "the system defaults"
	}
	return "limits of " + target
}

func printChange(a *kit.Run, c *manifest.Change) {
	head := fmt.Sprintf("%s %s %s", signs[c.Action], c.Action, headOf(c.Target, c.Own, c.Scope))
	if c.Action == manifest.Move {
		head += " from manifest " + c.Manager
	}
	switch {
	case c.Action == manifest.Release:
		head += ": stays as it is, managed by no manifest"
	case c.Moves == delta.Both:
		head += ": loosens in one way, tightens in another"
	case c.Moves != delta.Same:
		head += ": " + string(c.Moves)
	case c.Action == manifest.Move && len(c.Fields) == 0:
		head += ": values stay the same"
	case c.Action == manifest.Adopt && len(c.Fields) == 0:
		head += ": values stay the same, managed from now on"
	}
	a.Out.Println()
	a.Out.Println(colored(a, c.Action, term.Clean(head)))
	if c.Touches != nil && c.Entity == "" {
		switch {
		case c.Plan != "":
			line(a, "    applies to %s on the plan without limits of their own", kit.Plural(c.Touches.OnPlan, "entity"))
		case c.Resource != "":
			line(a, "    applies to entities without limits of their own on %s",
				strings.TrimPrefix(c.Target, "resource "))
		default:
			line(a, "    applies where neither the entity nor the resource has limits")
		}
	}
	if c.Outside {
		line(a, "    changed by hand since the manifest was applied")
	}
	if text := otherwise(c); text != "" {
		line(a, "    %s", text)
	}
	for _, f := range c.Applies {
		line(a, "    %s", fieldText(f, true))
	}
	changes := c.Action != manifest.Create && c.Action != manifest.Delete
	for _, f := range c.Fields {
		if f.Limit == "" || len(c.Applies) == 0 {
			line(a, "    %s", fieldText(f, changes))
		}
	}
	if c.Touches != nil {
		line(a, "    %s", touchesText(c))
	}
	if c.Refused != "" {
		a.Out.Println(a.Out.Bad(term.Clean("    refused: " + c.Refused)))
	}
}

// otherwise describes which limits apply before new limits are created, or after limits are deleted.
func otherwise(c *manifest.Change) string {
	limits := c.Touches != nil && !c.Own
	switch when := map[manifest.Action]string{
		manifest.Create: "until now", manifest.Delete: "from then on",
	}[c.Action]; {
	case !limits || when == "":
		return ""
	case c.From == "" && store.Aggregate(c.Resource):
		return when + " nothing limits it"
	case c.From == "":
		return when + " no limits apply, and requests fail with an error"
	default:
		return when + " limits apply from " + c.From
	}
}

func colored(a *kit.Run, action manifest.Action, text string) string {
	switch action {
	case manifest.Create:
		return a.Out.Good(text)
	case manifest.Delete:
		return a.Out.Bad(text)
	case manifest.Update, manifest.Adopt, manifest.Move, manifest.Release:
	}
	return a.Out.Bold(text)
}

// fieldText returns text such as "rpm: 500 -> 200 per minute (tightens)". For a change, a missing value is written as
// none.
func fieldText(f delta.Field, changes bool) string {
	name, none := f.Name, "none"
	if f.Limit != "" {
		if name = f.Limit; f.Name != "limit" && f.Name != "rate" {
			name += " " + f.Name
		}
		none = "no limit"
	} else if f.Name == "entities" {
		none = "any"
	}
	text := name + ": "
	switch {
	case !changes && f.Old == "":
		text += f.New
	case !changes && f.New == "":
		text += f.Old
	default:
		text += shorter(cmp.Or(f.Old, none), cmp.Or(f.New, none))
	}
	if f.Moves != delta.Same && changes {
		text += " (" + string(f.Moves) + ")"
	}
	return text
}

// shorter returns "1000 -> 2000 per minute" for 1000 per minute and 2000 per minute.
func shorter(old, text string) string {
	n, per, ok := strings.Cut(old, " per ")
	if _, other, also := strings.Cut(text, " per "); ok && also && per == other {
		old = n
	}
	return old + " -> " + text
}

func printPlanTotals(a *kit.Run, p *manifest.Plan) {
	if p.Empty() {
		text := "No changes: everything declared is live (" + kit.Plural(p.Unchanged, "record") + ")."
		if p.Last.Hash != p.Hash && p.Unchanged > 0 {
			text += " Applying it only records the manifest as applied."
		}
		a.Out.Println(text)
	} else {
		line(a, "Plan: %s.", counted(
			count{p.Count(manifest.Create), "to create"}, count{p.Count(manifest.Update), "to update"},
			count{p.Count(manifest.Delete), "to delete"},
			count{p.Count(manifest.Adopt), "to adopt (live, but not managed by any manifest yet)"},
			count{p.Count(manifest.Move), "to move here"}, count{p.Count(manifest.Release), "to release"}))
		for _, g := range p.Givers {
			left := "it then manages nothing"
			if g.Left > 0 {
				left = "it keeps " + kit.Plural(g.Left, "record")
			}
			line(a, "Of manifest %s, %s to move here; %s.", g.Manifest, kit.Plural(g.Moved, "record"), left)
		}
		if p.Unchanged > 0 {
			line(a, "Already as declared: %d.", p.Unchanged)
		}
	}
	for _, text := range p.Warnings {
		line(a, "Warning: %s", text)
	}
	if text := overText(p); text != "" {
		line(a, "%s", text)
	}
	a.Out.Println()
}

func printResult(a *kit.Run, r *manifest.Result) {
	revision := ""
	if r.Revision > 0 && len(r.Failed) == 0 {
		revision = fmt.Sprintf(" Revision %d.", r.Revision)
	}
	line(a, "Applied to %s: %s; %d unchanged.%s", r.Namespace, counted(
		count{r.Created, "created"}, count{r.Updated, "updated"}, count{r.Deleted, "deleted"},
		count{r.Adopted, "adopted"}, count{r.Moved, "moved here"}, count{r.Released, "released"},
		count{r.Kept, "kept because of --no-delete"}, count{len(r.Failed), "failed"},
	), r.Unchanged, revision)
	for _, f := range r.Failed {
		a.Out.Println(a.Out.Bad(term.Clean(fmt.Sprintf("  failed to %s %s: %s", f.Action, f.Target, f.Error))))
	}
}
