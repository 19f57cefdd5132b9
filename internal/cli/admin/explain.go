package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/store"
)

// ExplainCmd returns the command that shows how a request would be decided, and why.
func ExplainCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use:   "explain ENTITY RESOURCE [LIMIT=AMOUNT...]",
		Short: "Show which limits apply, where they come from and which one binds",
		Long: `Shows how a request would be decided now, and why: every limit that applies to the entity and
to the parents that are charged with it, the level and manifest that the limit comes from, what
is left of it, and which limit binds. Without amounts, the request asks for no tokens. The
command spends and writes nothing.

The exit code is 0 even if the request would be refused. To branch in a script, use
weir available, which then exits with 3.`,
		Example: "  weir explain key-alice gpt-4\n  weir explain key-alice gpt-4 rpm=1 tpm=5000\n  weir explain " +
			"key-alice gpt-4 tpm=5000 -o json",
	}, func(ctx context.Context, q *api.Question) error {
		r.Config.OnUnavailable = stores.OnUnavailable(r.Store) // without --server: as a server with its defaults
		return r.Call(api.Explain.Op, func(c api.Caller) error {
			x, _, err := api.Explain.Call(ctx, c, q)
			if err != nil {
				return err
			}
			return r.Print(x, func() { printExplanation(r, x) })
		})
	})
}

func printExplanation(a *kit.Run, x *api.Explanation) {
	a.Out.Println(verdict(a, x))
	if text := bindingText(a, x); text != "" {
		a.Out.Println(text)
	}
	revisions := make(map[string]api.ExplainedRevision)
	for _, r := range x.Manifests {
		revisions[r.Manifest] = r
	}
	printGrid(a, x)
	for i := range x.Chain {
		a.Out.Println(a.Out.Faint([]string{"", "│"}[min(i, 1)]))
		printExplained(a, x, i, revisions)
	}
	a.Out.Println()
	from := map[string]string{
		"request": "set by the request", "config": "the default", string(weir.SourceSystem): "the namespace's setting",
		string(weir.SourceResource):      "the resource's setting",
		string(weir.SourceEntity):        "the entity's setting on the resource",
		string(weir.SourceEntityDefault): "the entity's setting",
		string(weir.SourcePlan):          "the plan's setting on the resource",
		string(weir.SourcePlanDefault):   "the plan's setting",
	}[x.OnUnavailable.From]
	if x.OnUnavailable.From != "" {
		a.Out.Println(a.Out.Faint(fmt.Sprintf("when the store does not answer: %s (%s)", x.OnUnavailable.Value, from)))
	}
}

// verdict describes on one line how the request would be decided.
func verdict(a *kit.Run, x *api.Explanation) string {
	what := fmt.Sprintf("%s on %s", term.Clean(x.Entity), term.Clean(x.Resource))
	if len(x.Tokens) > 0 {
		what += " for " + term.Clean(tokensText(x.Tokens))
	}
	switch x.Outcome {
	case api.Allowed:
		return a.Out.Good("would be allowed:") + " " + what
	case api.ExceedsBurst:
		return a.Out.Bad("would never be allowed:") + " " + what
	case api.NoLimits:
		return a.Out.Bad("no limits apply:") + " " + what + ", so requests fail with an error"
	}
	return a.Out.Bad("would be refused:") + " " + what + ", " + retry(x.RetryAfter)
}

// tokensText writes amounts as on the command line: rpm=1 tpm=500.
func tokensText(tokens weir.Tokens) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(tokens)) {
		parts = append(parts, name+"="+strconv.FormatInt(tokens[name], 10))
	}
	return strings.Join(parts, " ")
}

// bindingText describes which limit binds, and why.
func bindingText(a *kit.Run, x *api.Explanation) string {
	entity, l := binding(x)
	if l == nil {
		if x.Outcome == api.NoLimits {
			return "set limits for the entity, the resource or the system: weir limits apply, weir resource set, " +
				"weir system set"
		}
		if len(x.Tokens) > 0 {
			return "no limit binds: what is requested, balances and limits in shadow let pass"
		}
		return "no limit binds: nothing is requested and nothing is spent"
	}
	name := l.Limit + " of " + entity
	if l.Resource != "" {
		name += " on " + resourceText(l.Resource)
	}
	name = a.Out.Bold(term.Clean(name))
	switch {
	case never(l):
		return fmt.Sprintf(
			"%s binds: %s requested, but at most %s can be spent at once", name, a.Out.Count(l.Requested),
			a.Out.Count(l.Burst),
		)
	case l.Refused && l.Available < 0:
		return fmt.Sprintf("%s binds: it is in debt by %s", name, a.Out.Count(-l.Available))
	case l.Refused:
		return fmt.Sprintf("%s binds: %s requested, %s left", name, a.Out.Count(l.Requested), a.Out.Count(l.Available))
	case l.Requested > 0:
		return fmt.Sprintf(
			"%s binds: it would have the least left, %s", name, left(a, l.Available-l.Requested, l.Burst),
		)
	}
	return fmt.Sprintf("%s binds: it has the least left, %s", name, left(a, l.Available, l.Burst))
}

// resourceText names a resource for people.
func resourceText(resource string) string {
	return term.Clean(store.ResourceText(resource))
}

// printGrid prints what is left of each limit: a row for each entity, a column for the resource, its group and the
// total. It prints nothing if there is only the resource.
func printGrid(a *kit.Run, x *api.Explanation) {
	if len(x.Chain) == 0 || len(x.Chain[0].Groups) == 0 {
		return
	}
	columns := []string{""}
	t := &term.Table{Header: []string{"ENTITY", resourceText(x.Resource)}}
	for _, g := range x.Chain[0].Groups {
		if !slices.Contains(columns, g.Resource) {
			columns, t.Header = append(columns, g.Resource), append(t.Header, resourceText(g.Resource))
		}
	}
	for i := range x.Chain {
		row := []string{term.Clean(x.Chain[i].Entity)}
		for _, on := range columns {
			var cell []string
			for _, l := range x.Chain[i].Limits {
				if l.Resource == on {
					mark := ""
					if l.Binds {
						mark = "▶ "
					}
					cell = append(cell, mark+term.Clean(l.Limit)+" "+left(a, l.Available, l.Burst))
				}
			}
			row = append(row, kit.OrDash(strings.Join(cell, ", ")))
		}
		t.Row(row...)
	}
	a.Out.Println()
	a.Out.Table(t)
}

// printExplained prints one entity of the chain: its id, the levels searched for limits, and the limits that apply.
func printExplained(a *kit.Run, x *api.Explanation, at int, revisions map[string]api.ExplainedRevision) {
	n := &x.Chain[at]
	head, line := "", "│ "
	if at > 0 {
		head = "└ charges "
	}
	if at == len(x.Chain)-1 {
		line = "  "
	}
	title := a.Out.Bold(term.Clean(n.Entity))
	if n.Name != "" && n.Name != n.Entity {
		title += " (" + term.Clean(n.Name) + ")"
	}
	a.Out.Println(head + title + a.Out.Faint(", "+entityText(n, revisions)))
	put := func(text string) { a.Out.Println(strings.TrimRight(a.Out.Faint(line)+text, " ")) }
	on := ""
	for _, l := range slices.Concat(n.Levels, n.Groups) {
		if l.Resource != on {
			on = l.Resource
			put("  on " + resourceText(on))
		}
		mark, style := " ", a.Out.Faint
		if l.Applies {
			mark, style = a.Out.Good("✓"), func(s string) string { return s }
		}
		put(fmt.Sprintf("%s %s %s", mark, style(term.Fit(string(l.Source), 14)), style(levelText(x, n, l, revisions))))
	}
	if len(n.Limits) == 0 && at > 0 {
		put("  not charged: it has no limits")
	}
	if len(n.Limits)+len(n.Changes) > 0 {
		put("")
	}
	width := 0
	for i := range n.Limits {
		width = max(width, lipgloss.Width(explainedText(&n.Limits[i])))
	}
	for i := range n.Limits {
		printExplainedLimit(a, put, x.At, &n.Limits[i], width)
	}
	for i := range n.Changes {
		put("  " + changeText(n, &n.Changes[i]))
	}
}

// changeText describes what applies once limits end or others begin.
func changeText(n *api.ExplainedEntity, ch *api.ExplainedChange) string {
	text, on := "no limits", ""
	if len(ch.Limits) > 0 {
		var limits []string
		for _, l := range ch.Limits {
			limits = append(limits, l.String()+notes(l))
		}
		text = term.Clean(strings.Join(limits, ", ")) + " (" + string(ch.Source) + ")"
	}
	if ch.Resource != "" {
		on = "on " + resourceText(ch.Resource) + ", "
	}
	if slices.ContainsFunc(n.Limits, func(l api.ExplainedLimit) bool { return l.Resource == ch.Resource }) {
		return on + timeIn("until ", ch.At) + ", then " + text
	}
	return on + timeIn("from ", ch.At) + ": " + text
}

func entityText(n *api.ExplainedEntity, revisions map[string]api.ExplainedRevision) string {
	text := "never created"
	if n.Exists {
		text = "created"
		if n.Manifest != "" {
			text = "declared by " + manifestText(n.Manifest, revisions)
		}
	}
	switch {
	case n.Cascade:
		text += ", also charges its parent"
	case n.Parent != "":
		text += ", does not charge its parent " + term.Clean(n.Parent) + ": cascade is off"
	}
	if n.Items > 1 {
		text += ", " + kit.Plural(n.Items, "item") + " in the store"
	}
	return text
}

func manifestText(name string, revisions map[string]api.ExplainedRevision) string {
	r, ok := revisions[name]
	if !ok {
		return "manifest " + term.Clean(name)
	}
	text := fmt.Sprintf(
		"manifest %s, revision %d of %s", term.Clean(name), r.Revision, r.At.UTC().Format(time.DateOnly),
	)
	if r.By != "" {
		text += " by " + term.Clean(r.By)
	}
	return text
}

// levelText describes what was found at a level.
func levelText(
	x *api.Explanation, n *api.ExplainedEntity, l api.ExplainedLevel, revisions map[string]api.ExplainedRevision,
) string {
	resource := resourceText(cmp.Or(l.Resource, x.Resource))
	what := map[weir.Source]string{
		weir.SourceRequest: "limits of its own", weir.SourceEntity: "limits of its own on " + resource,
		weir.SourceEntityDefault: "limits for any resource",
		weir.SourcePlan:          "limits of plan " + term.Clean(n.Plan) + " on " + resource,
		weir.SourcePlanDefault:   "limits of plan " + term.Clean(n.Plan) + " for any resource",
		weir.SourceResource:      "limits of " + resource, weir.SourceSystem: "limits of the namespace",
	}[l.Source]
	switch {
	case !l.Set:
		return "no " + what
	case !l.Applies:
		return what + ", not used"
	}
	what += " apply"
	at := slices.IndexFunc(n.Limits, func(o api.ExplainedLimit) bool { return o.Resource == l.Resource })
	if m := n.Limits[at].Manifest; m != "" {
		what += ": " + manifestText(m, revisions)
	}
	return what
}

// explainedText is a limit's text, with how it is enforced.
func explainedText(l *api.ExplainedLimit) string {
	text := term.Clean(l.Text)
	if l.Resource != "" {
		text += " on " + resourceText(l.Resource)
	}
	switch {
	case l.Enforce == weir.EnforceOn:
	case l.Enforce == weir.EnforceShadow:
		text += " (shadow)"
	case l.Shadow:
		text += fmt.Sprintf(" (%s, shadow here)", l.Enforce)
	default:
		text += fmt.Sprintf(" (%s, on here)", l.Enforce)
	}
	if l.MaxDebt != 0 {
		text += fmt.Sprintf(" (max_debt %d)", l.MaxDebt)
	}
	if l.Returns != "" {
		text += " (returns " + l.Returns + ")"
	}
	return text
}

// never reports whether the request needs more of a limit than can ever be spent at once. A balance can be topped up.
func never(l *api.ExplainedLimit) bool { return !l.Shadow && l.Burst > 0 && l.Requested > l.Burst }

// binding returns the limit that binds, and its entity; nil if none does.
func binding(x *api.Explanation) (string, *api.ExplainedLimit) {
	for i := range x.Chain {
		for j := range x.Chain[i].Limits {
			if l := &x.Chain[i].Limits[j]; l.Binds {
				return x.Chain[i].Entity, l
			}
		}
	}
	return "", nil
}

const explainedBar = 16

// percent formats a share in four columns, rounded down so that 100% means all.
func percent(share float64) string { return fmt.Sprintf("%3.0f%%", math.Floor(100*share)) }

func printExplainedLimit(a *kit.Run, put func(string), at time.Time, l *api.ExplainedLimit, width int) {
	mark, used := " ", usedOf(l.Available, l.Burst)
	if l.Binds {
		mark = a.Out.Warn("▶")
	}
	share := a.Out.Bar(used, explainedBar) + " " + percent(used) + " used"
	if l.Burst == 0 {
		share = term.Fit("", lipgloss.Width(share)) // of a balance, nothing is a share
	}
	text := fmt.Sprintf(
		"%s %s  %s  %s", mark, term.Fit(explainedText(l), width), share, heldOrLeft(a, l.Available, l.Burst, l.Amount))
	if l.FullIn > l.EndsIn {
		text += "  full in " + span(l.FullIn)
	}
	if l.EndsIn > 0 {
		s := api.Status{Limit: l.Limit, Amount: l.Amount, Period: l.Period, Burst: l.Burst, EndsIn: l.EndsIn}
		text += "  " + endText(&s, at)
	}
	put(text)
	asked := a.Out.Count(l.Requested)
	var why string
	switch {
	case never(l):
		why = a.Out.Bad("would never admit " + asked + ", more than its burst")
	case l.Refused:
		why = a.Out.Bad("would refuse " + asked + ", " + retry(l.RetryAfter))
	case l.WouldRefuse:
		why = a.Out.Warn("would refuse " + asked + " if it were not in shadow")
	case l.Requested > 0:
		why = a.Out.Faint("would leave " + a.Out.Count(l.Available-l.Requested) + " after " + asked)
	default:
		return
	}
	put("  " + strings.Repeat(" ", width) + "  " + why)
}
