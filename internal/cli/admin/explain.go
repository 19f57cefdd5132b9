package admin

import (
	"context"
	"errors"
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
	}, func(ctx context.Context, q *spending) error {
		return r.With(stores.Existing, func(lim *weir.Limiter) error {
			x, err := lim.Explain(ctx, q.request())
			if err != nil {
				return err
			}
			return r.Print(api.Explanation{Explanation: x}, func() { printExplanation(r, &x) })
		})
	})
}

func printExplanation(a *kit.Run, x *weir.Explanation) {
	a.Out.Println(verdict(a, x))
	if text := bindingText(a, x); text != "" {
		a.Out.Println(text)
	}
	revisions := make(map[string]weir.ExplainedManifest)
	for _, r := range x.Manifests {
		revisions[r.Manifest] = r
	}
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
	}[x.OnUnavailableFrom]
	if x.OnUnavailableFrom != "" {
		a.Out.Println(a.Out.Faint(fmt.Sprintf("when the store does not answer: %s (%s)", x.OnUnavailable, from)))
	}
}

// verdict says on one line how the request would be decided.
func verdict(a *kit.Run, x *weir.Explanation) string {
	what := fmt.Sprintf("%s on %s", term.Clean(x.Entity), term.Clean(x.Resource))
	if len(x.Tokens) > 0 {
		what += " for " + term.Clean(tokensText(x.Tokens))
	}
	switch {
	case x.Err == nil:
		return a.Out.Good("would be allowed:") + " " + what
	case errors.Is(x.Err, weir.ErrExceedsBurst):
		return a.Out.Bad("would never be allowed:") + " " + what
	case errors.Is(x.Err, weir.ErrNoLimits):
		return a.Out.Bad("no limits apply:") + " " + what + ", so requests fail with an error"
	}
	return a.Out.Bad("would be refused:") + " " + what + ", retry in " + kit.Span(x.RetryAfter())
}

// tokensText writes amounts as on the command line: rpm=1 tpm=500.
func tokensText(tokens weir.Tokens) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(tokens)) {
		parts = append(parts, name+"="+strconv.FormatInt(tokens[name], 10))
	}
	return strings.Join(parts, " ")
}

// bindingText says which limit binds, and why.
func bindingText(a *kit.Run, x *weir.Explanation) string {
	n, l := x.Binding()
	if l == nil {
		if errors.Is(x.Err, weir.ErrNoLimits) {
			return "set limits for the entity, the resource or the system: weir limits apply, weir resource set, " +
				"weir system set"
		}
		return "no limit binds: nothing is requested and nothing is spent"
	}
	s := &l.Status
	name := a.Out.Bold(term.Clean(s.Limit + " of " + n.ID))
	switch {
	case l.Never():
		return fmt.Sprintf(
			"%s binds: %s requested, but at most %s can be spent at once", name, a.Out.Count(s.Requested),
			a.Out.Count(s.Burst),
		)
	case s.Refused && s.Available < 0:
		return fmt.Sprintf("%s binds: it is in debt by %s", name, a.Out.Count(-s.Available))
	case s.Refused:
		return fmt.Sprintf("%s binds: %s requested, %s left", name, a.Out.Count(s.Requested), a.Out.Count(s.Available))
	case s.Requested > 0:
		return fmt.Sprintf(
			"%s binds: it would have the least left, %s of %s", name, a.Out.Count(s.Available-s.Requested),
			a.Out.Count(s.Burst),
		)
	}
	return fmt.Sprintf(
		"%s binds: it has the least left, %s of %s", name, a.Out.Count(s.Available), a.Out.Count(s.Burst),
	)
}

// printExplained prints one entity of the chain: its id, the levels searched for limits, and the limits that apply.
func printExplained(a *kit.Run, x *weir.Explanation, at int, revisions map[string]weir.ExplainedManifest) {
	n := &x.Chain[at]
	head, line := "", "│ "
	if at > 0 {
		head = "└ charges "
	}
	if at == len(x.Chain)-1 {
		line = "  "
	}
	title := a.Out.Bold(term.Clean(n.ID))
	if n.Name != "" && n.Name != n.ID {
		title += " (" + term.Clean(n.Name) + ")"
	}
	a.Out.Println(head + title + a.Out.Faint(", "+entityText(n, revisions)))
	put := func(text string) { a.Out.Println(strings.TrimRight(a.Out.Faint(line)+text, " ")) }
	for _, l := range n.Levels {
		mark, style := " ", a.Out.Faint
		if l.Applies {
			mark, style = a.Out.Good("✓"), func(s string) string { return s }
		}
		put(fmt.Sprintf("%s %s %s", mark, style(term.Fit(string(l.Source), 14)), style(levelText(x, n, l, revisions))))
	}
	if len(n.Limits) == 0 {
		if at > 0 {
			put("  not charged: it has no limits")
		}
		return
	}
	put("")
	width := 0
	for i := range n.Limits {
		width = max(width, lipgloss.Width(explainedText(&n.Limits[i])))
	}
	for i := range n.Limits {
		printExplainedLimit(a, put, &n.Limits[i], width)
	}
}

func entityText(n *weir.ExplainedEntity, revisions map[string]weir.ExplainedManifest) string {
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
	return text
}

func manifestText(name string, revisions map[string]weir.ExplainedManifest) string {
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
	x *weir.Explanation, n *weir.ExplainedEntity, l weir.ExplainedLevel, revisions map[string]weir.ExplainedManifest,
) string {
	resource := term.Clean(x.Resource)
	what := map[weir.Source]string{
		weir.SourceRequest: "limits of its own", weir.SourceEntity: "limits of its own on " + resource,
		weir.SourceEntityDefault: "limits for any resource",
		weir.SourceResource:      "limits of " + resource, weir.SourceSystem: "limits of the namespace",
	}[l.Source]
	switch {
	case !l.Set:
		return "no " + what
	case !l.Applies:
		return what + ", not used"
	}
	what += " apply"
	if m := n.Limits[0].Status.Manifest; m != "" {
		what += ": " + manifestText(m, revisions)
	}
	return what
}

// explainedText is a limit's text, with how it is enforced.
func explainedText(l *weir.ExplainedLimit) string {
	text := term.Clean(l.Limit.String())
	switch {
	case l.Limit.Enforce == weir.EnforceOn:
	case l.Limit.Enforce == weir.EnforceShadow:
		text += " (shadow)"
	case l.Status.Shadow:
		text += fmt.Sprintf(" (%s, shadow here)", l.Limit.Enforce)
	default:
		text += fmt.Sprintf(" (%s, on here)", l.Limit.Enforce)
	}
	return text
}

const explainedBar = 16

// percent formats a share in four columns, rounded down so that 100% means all.
func percent(share float64) string { return fmt.Sprintf("%3.0f%%", math.Floor(100*share)) }

func printExplainedLimit(a *kit.Run, put func(string), l *weir.ExplainedLimit, width int) {
	s := &l.Status
	mark := " "
	if l.Binds {
		mark = a.Out.Warn("▶")
	}
	text := fmt.Sprintf(
		"%s %s  %s %s used  %s of %s left", mark, term.Fit(explainedText(l), width), a.Out.Bar(l.Used(), explainedBar),
		percent(l.Used()), a.Out.Count(s.Available), a.Out.Count(s.Burst))
	if s.Full > 0 {
		text += "  full in " + kit.Span(s.Full)
	}
	put(text)
	asked := a.Out.Count(s.Requested)
	var why string
	switch {
	case l.Never():
		why = a.Out.Bad("would never admit " + asked + ", more than its burst")
	case s.Refused:
		why = a.Out.Bad("would refuse " + asked + ", retry in " + kit.Span(s.RetryAfter))
	case s.WouldRefuse:
		why = a.Out.Warn("would refuse " + asked + " if it were not in shadow")
	case s.Requested > 0:
		why = a.Out.Faint("would leave " + a.Out.Count(s.Available-s.Requested) + " after " + asked)
	default:
		return
	}
	put("  " + strings.Repeat(" ", width) + "  " + why)
}
