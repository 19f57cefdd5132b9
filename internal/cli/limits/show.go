package limits

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/drift"
	"github.com/weirlimits/weir/store"
)

var signs = map[manifest.Action]string{
	manifest.Create: "+", manifest.Update: "~", manifest.Delete: "-", manifest.Adopt: ">",
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
	a.Out.Println(a.Out.Bold("Plan for " + titleOf(p) + "." + note))
	if p.CreateNamespace {
		a.Out.Println("The namespace does not exist and will be created.")
	}
	switch o := p.Rollout; {
	case o != nil && o.Same:
		line(a, "A rollout of it is unfinished, at %d%%: apply continues it, %s.", o.Percent, termsText(o.Terms))
	case o != nil:
		line(a, "A rollout of another version (%s) is unfinished, at %d%%: apply ends it, for all entities at once.",
			shortHash(o.Hash), o.Percent)
	}
	for i := range p.Changes {
		printChange(a, &p.Changes[i])
	}
	if len(p.Changes) > 0 {
		a.Out.Println()
	}
	printPlanTotals(a, p)
}

func titleOf(p *manifest.Plan) string {
	title := "namespace " + term.Clean(p.Namespace)
	if p.Manifest != manifest.DefaultName {
		title += ", manifest " + term.Clean(p.Manifest)
	}
	return title
}

// headOf names what a change affects: an entity, or the limits of something.
func headOf(c *manifest.Change) string {
	switch {
	case c.Own:
		return c.Target
	case c.Entity == "" && c.Resource == "" && c.Plan == "":
		return "the system defaults"
	}
	return "limits of " + c.Target
}

func printChange(a *kit.Run, c *manifest.Change) {
	head := fmt.Sprintf("%s %s %s", signs[c.Action], c.Action, headOf(c))
	switch {
	case c.Moves == delta.Both:
		head += ": loosens in one way, tightens in another"
	case c.Moves != delta.Same:
		head += ": " + string(c.Moves)
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
	for _, f := range c.Fields {
		if f.Limit == "" || len(c.Applies) == 0 {
			line(a, "    %s", fieldText(f, c.Action == manifest.Update || c.Action == manifest.Adopt))
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
	case manifest.Update, manifest.Adopt:
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
			count{p.Count(manifest.Adopt), "to adopt (live, but not managed by any manifest yet)"}))
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

// maxNames is how many records without a manifest are printed.
const maxNames = 20

// printUnmanaged prints the records that no manifest manages.
func printUnmanaged(a *kit.Run, names []string) {
	if len(names) == 0 {
		return
	}
	line(a, "Not declared here, and managed by no manifest: %s.", kit.Plural(len(names), "record"))
	for _, name := range names[:min(len(names), maxNames)] {
		line(a, "    %s", name)
	}
	if more := len(names) - maxNames; more > 0 {
		line(a, "    and %d more: -o json lists all", more)
	}
}

func printResult(a *kit.Run, r *manifest.Result) {
	revision := ""
	if r.Revision > 0 && len(r.Failed) == 0 {
		revision = fmt.Sprintf(" Revision %d.", r.Revision)
	}
	line(a, "Applied to %s: %s; %d unchanged.%s", r.Namespace, counted(
		count{r.Created, "created"}, count{r.Updated, "updated"}, count{r.Deleted, "deleted"},
		count{r.Adopted, "adopted"}, count{r.Kept, "kept because of --no-delete"}, count{len(r.Failed), "failed"},
	), r.Unchanged, revision)
	for _, f := range r.Failed {
		a.Out.Println(a.Out.Bad(term.Clean(fmt.Sprintf("  failed to %s %s: %s", f.Action, f.Target, f.Error))))
	}
}

var driftTexts = map[drift.Why]string{
	drift.Edited:     "changed by hand since the manifest was applied",
	drift.Removed:    "removed by hand since the manifest was applied",
	drift.Unapplied:  "not applied yet: the manifest has changed",
	drift.Unmanaged:  "conflicting: live, but not managed by any manifest",
	drift.Undeclared: "live, but no longer declared",
}

func printDrift(a *kit.Run, p *manifest.Plan, report *drift.Report) {
	a.Out.Println(a.Out.Bold("Drift of " + titleOf(p)))
	if p.CreateNamespace {
		a.Out.Println("The namespace does not exist.")
	}
	byHand := false
	for i := range p.Changes {
		c, r := &p.Changes[i], &report.Drift[i]
		byHand = byHand || r.Why.Hand()
		head := signs[c.Action] + " " + headOf(c) + ": " + driftTexts[r.Why]
		if r.By != "" {
			head += ", by " + r.By + " at " + kit.Instant(r.At)
		}
		a.Out.Println()
		a.Out.Println(colored(a, c.Action, term.Clean(head)))
		for _, f := range c.Fields {
			name := strings.TrimSpace(f.Limit + " " + strings.TrimPrefix(strings.TrimPrefix(f.Name, "limit"), "rate"))
			line(a, "    %s: live %s, declared %s", name, cmp.Or(f.Old, "nothing"), cmp.Or(f.New, "nothing"))
		}
	}
	if len(p.Changes) > 0 {
		a.Out.Println()
		a.Out.Println(kit.Plural(len(p.Changes), "record") + " not as declared.")
	} else if !p.CreateNamespace {
		a.Out.Println("No drift: everything declared is live (" + kit.Plural(p.Unchanged, "record") + ").")
	}
	if byHand {
		line(a, "To keep what was changed by hand, take it into the file from: weir --namespace %s limits export%s",
			p.Namespace, ofManifest(p))
		line(a, "To revert it: weir limits apply")
	}
	printUnmanaged(a, report.Unmanaged)
	a.Out.Println()
}

// ofManifest returns the flag that names the manifest of a plan.
func ofManifest(p *manifest.Plan) string {
	if p.Manifest == manifest.DefaultName {
		return ""
	}
	return " --manifest " + p.Manifest
}
