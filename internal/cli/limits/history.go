package limits

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest"
)

func limitsHistoryCmd(a *kit.Run) *cobra.Command {
	var name string
	var page kit.PageFlags
	cmd := &cobra.Command{
		Use:     "history [REVISION]",
		Short:   "List the applied revisions, or print the manifest of one",
		Example: "  weir limits history\n  weir limits history 3",
		Args: func(cmd *cobra.Command, names []string) error {
			if len(names) > 1 {
				return fmt.Errorf("%q is one argument too many: %s", names[1], cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				if len(names) == 1 {
					n, err := revisionNumber(names[0])
					if err != nil {
						return err
					}
					_, text, err := lim.Revision(cmd.Context(), name, n)
					if err != nil {
						return err
					}
					return printText(a, text)
				}
				found, next, err := kit.Collect(&page, func(after string, size int) ([]weir.Revision, string, error) {
					page, err := lim.Revisions(cmd.Context(), weir.RevisionQuery{Manifest: name, After: after, Max: size})
					return page.Revisions, page.Next, err
				})
				if err != nil {
					return err
				}
				return kit.PrintPage(a, found, next, func() {
					t := &term.Table{Header: []string{"REVISION", "AT", "BY", "SUMMARY", "HASH"}, Right: []int{0}, Cut: []int{3}}
					for _, r := range found {
						t.Row(strconv.Itoa(r.Revision), kit.Instant(r.At), r.By, r.Summary, shortHash(r.Hash))
					}
					a.Out.Table(t)
				})
			})
		},
	}
	manifestFlag(cmd, &name)
	return page.Add(cmd)
}

// shortHash returns enough of a hash to tell manifests apart.
func shortHash(hash string) string {
	hash = strings.TrimPrefix(hash, "sha256:")
	return hash[:min(12, len(hash))]
}

func revisionNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, kit.Usagef("%q is not a revision: give a number from 1 that weir limits history lists", text)
	}
	return n, nil
}

func limitsRollbackCmd(a *kit.Run) *cobra.Command {
	var name string
	var flags applyFlags
	cmd := &cobra.Command{
		Use:   "rollback REVISION",
		Short: "Plan and apply the manifest of an earlier revision",
		Long: `Plans and applies the manifest of an earlier revision, which becomes the newest revision. Your
manifest file does not change: applying it again undoes the rollback.`,
		Example: "  weir limits rollback 3",
		Args:    kit.Args("REVISION"),
		RunE: func(cmd *cobra.Command, names []string) error {
			n, err := revisionNumber(names[0])
			if err != nil {
				return err
			}
			ctx := kit.As(cmd.Context())
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				_, text, err := lim.Revision(ctx, name, n)
				if err != nil {
					return err
				}
				ms, err := manifest.Decode([]manifest.Source{{Name: "revision " + names[0], Text: text}}, manifest.Options{})
				if err != nil {
					return fmt.Errorf("revision %d was written by another version of weir: %w", n, err)
				}
				plans, err := plans(ctx, a, lim, ms, false)
				if err != nil {
					return err
				}
				return apply(ctx, a, lim, plans, flags, fmt.Sprintf("rollback to revision %d", n))
			})
		},
	}
	manifestFlag(cmd, &name)
	flags.add(cmd)
	return cmd
}
