package admin

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
)

// availableView shows what an entity could spend, as printed.
type availableView struct {
	At         string       `json:"at"`
	Limits     []statusView `json:"limits"`
	Fits       *bool        `json:"fits,omitempty"` // only if amounts were given
	RetryAfter *kit.Seconds `json:"retry_after,omitempty"`
}

func AvailableCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "available ENTITY RESOURCE [LIMIT=AMOUNT...]",
		Short: "Show what can be spent now, without spending it",
		Long: `Shows what an entity could spend on a resource now, without spending or writing anything.
If amounts are given, it also says whether they would fit, and exits with 3 if not.`,
		Example: "  weir available key-alice gpt-4\n  weir available key-alice gpt-4 tpm=5000",
		Args:    spending(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			tokens, err := parseTokens(args[2:])
			if err != nil {
				return err
			}
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				av, err := lim.Available(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				view := availableView{At: kit.Instant(av.At), Limits: statusViews(av.Statuses)}
				var retry time.Duration
				if len(tokens) > 0 {
					if retry, err = av.RetryAfter(tokens); err != nil {
						return err
					}
					fits, after := retry == 0, kit.Seconds(retry)
					view.Fits, view.RetryAfter = &fits, &after
				}
				err = a.Print(view, func() {
					printStatuses(a, av.Statuses, false)
					switch {
					case view.Fits == nil:
					case *view.Fits:
						a.Out.Println(a.Out.Good("fits"))
					default:
						a.Out.Println(a.Out.Bad("does not fit")+",", "retry in", kit.Span(retry))
					}
				})
				if err == nil && retry > 0 {
					err = kit.Quiet(weir.ErrExceeded)
				}
				return err
			})
		},
	}
}
