package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
)

// availableView shows what an entity could spend, as printed.
type availableView struct {
	At         string       `json:"at"`
	Limits     []statusView `json:"limits"`
	Fits       *bool        `json:"fits,omitempty"` // only if amounts were given
	RetryAfter *seconds     `json:"retry_after,omitempty"`
}

func (a *app) availableCmd() *cobra.Command {
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
			return a.with(existing, func(lim *weir.Limiter) error {
				av, err := lim.Available(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				view := availableView{At: instant(av.At), Limits: statusViews(av.Statuses)}
				var retry time.Duration
				if len(tokens) > 0 {
					if retry, err = av.RetryAfter(tokens); err != nil {
						return err
					}
					fits, after := retry == 0, seconds(retry)
					view.Fits, view.RetryAfter = &fits, &after
				}
				err = a.print(view, func() {
					a.printStatuses(av.Statuses, false)
					switch {
					case view.Fits == nil:
					case *view.Fits:
						a.out.Println(a.out.Good("fits"))
					default:
						a.out.Println(a.out.Bad("does not fit")+",", "retry in", span(retry))
					}
				})
				if err == nil && retry > 0 {
					err = quietError{weir.ErrExceeded}
				}
				return err
			})
		},
	}
}
