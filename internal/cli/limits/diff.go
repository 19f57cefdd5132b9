package limits

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/drift"
	"github.com/weirlimits/weir/internal/manifest/live"
)

// diffRequest compares live limits with manifests.
type diffRequest struct {
	planFlags
	Unmanaged string `json:"unmanaged" values:"list,fail" default:"list"`
}

func diff(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "diff", Short: "Show how the live limits differ from manifests, and why",
		Long: `Shows how the live limits differ from manifests, why, and who changed them by hand and when,
as far as the audit log has it. It also lists the records that no manifest manages. With
--unmanaged fail, it fails if any of these loosens the limits that apply without it.`,
		Example: "  weir limits diff -f limits/ --detailed-exitcode --unmanaged fail",
	}, func(ctx context.Context, q *diffRequest) error {
		if q.Unmanaged == "fail" && q.Stack != "" {
			return kit.Usagef("--unmanaged does not work with --via-lambda: give --store URL or --server URL")
		}
		out := api.Drifts{Manifests: []drift.Report{}}
		err := func() error {
			ms, err := q.Read(r)
			if err != nil {
				return err
			}
			return q.with(ctx, r, stores.Existing, func(p planner) error {
				for _, m := range ms {
					d, err := p.diff(ctx, m, q.Exact)
					if err != nil {
						return err
					}
					out.Manifests = append(out.Manifests, d)
				}
				err := r.Print(out, func() {
					for i := range out.Manifests {
						printDrift(r, &out.Manifests[i])
					}
				})
				if err != nil || q.Unmanaged != "fail" {
					return err
				}
				return loose(out.Manifests)
			})
		}()
		return q.exit(slices.ContainsFunc(out.Manifests, func(d drift.Report) bool {
			return d.Missing || len(d.Drift) > 0
		}), err)
	})
}

// loose returns an error if records that no manifest manages loosen limits.
func loose(all []drift.Report) error {
	seen := make(map[[2]string]bool)
	var first string
	for i := range all {
		for _, u := range all[i].Unmanaged {
			if u.Moves == delta.Loosens || u.Moves == delta.Both {
				first = cmp.Or(first, u.Target)
				seen[[2]string{all[i].Namespace, u.Target}] = true
			}
		}
	}
	if len(seen) == 0 {
		return nil
	}
	return fmt.Errorf("records that no manifest manages loosen limits, %d in all, such as %s: declare them in a "+
		"manifest, which adopts them, or delete them", len(seen), first)
}

var driftTexts = map[drift.Why]string{
	drift.Edited:     "changed by hand since the manifest was applied",
	drift.Removed:    "removed by hand since the manifest was applied",
	drift.Unapplied:  "not applied yet: the manifest has changed",
	drift.Unmanaged:  "conflicting: live, but not managed by any manifest",
	drift.Undeclared: "live, but no longer declared",
}

// whyText returns why a record is not as declared, given the unfinished rollout of its manifest or nil.
func whyText(why drift.Why, o *manifest.Ongoing) string {
	switch {
	case o == nil:
	case why == drift.Staged:
		return fmt.Sprintf("in stages, in force for %d%% of the entities", o.Percent)
	case why == drift.Unapplied && o.Same:
		return "not applied yet: the rollout is unfinished"
	}
	return driftTexts[why]
}

func printDrift(a *kit.Run, d *drift.Report) {
	a.Out.Println(a.Out.Bold("Drift of " + titleOf(d.Namespace, d.Manifest)))
	if d.Missing {
		a.Out.Println("The namespace does not exist.")
	}
	printOngoing(a, d.Rollout)
	byHand := false
	for i := range d.Drift {
		r := &d.Drift[i]
		byHand = byHand || r.Why.Hand()
		head := signs[r.Action] + " " + headOf(r.Target, r.Own, r.Scope) + ": " + whyText(r.Why, d.Rollout)
		if r.By != "" {
			head += ", by " + r.By + " at " + kit.Instant(r.At)
		}
		a.Out.Println()
		a.Out.Println(colored(a, r.Action, term.Clean(head)))
		for _, f := range r.Fields {
			name := strings.TrimSpace(f.Limit + " " + strings.TrimPrefix(strings.TrimPrefix(f.Name, "limit"), "rate"))
			line(a, "    %s: live %s, declared %s", name, cmp.Or(f.Old, "nothing"), cmp.Or(f.New, "nothing"))
		}
	}
	if len(d.Drift) > 0 {
		a.Out.Println()
		a.Out.Println(kit.Plural(len(d.Drift), "record") + " not as declared.")
	} else if !d.Missing {
		a.Out.Println("No drift: everything declared is live (" + kit.Plural(d.Unchanged, "record") + ").")
	}
	if byHand {
		line(a, "To keep what was changed by hand, take it into the file from: weir --namespace %s limits export%s",
			d.Namespace, ofManifest(d.Manifest))
		line(a, "To revert it: weir limits apply")
	}
	printUnmanaged(a, d.Unmanaged)
	a.Out.Println()
}

// ofManifest returns the flag that names a manifest.
func ofManifest(name string) string {
	if name == manifest.DefaultName {
		return ""
	}
	return " --manifest " + name
}

// maxNames is how many records without a manifest are printed.
const maxNames = 20

// printUnmanaged prints the records that no manifest manages.
func printUnmanaged(a *kit.Run, all []live.Unmanaged) {
	if len(all) == 0 {
		return
	}
	line(a, "Not declared here, and managed by no manifest: %s.", kit.Plural(len(all), "record"))
	for _, u := range all[:min(len(all), maxNames)] {
		text := u.Target
		if u.Moves != delta.Same {
			text += ": " + string(u.Moves)
		}
		line(a, "    %s", text)
	}
	if more := len(all) - maxNames; more > 0 {
		line(a, "    and %d more: -o json lists all", more)
	}
}
