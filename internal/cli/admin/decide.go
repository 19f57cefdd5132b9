// Package admin has the commands that decide by hand, configure what is in a store, and look into it.
package admin

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("admin", fields)

// AcquireCmd returns the command that spends tokens.
func AcquireCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "acquire ENTITY RESOURCE LIMIT=AMOUNT...", Short: "Spend tokens if the limits allow it",
		Long: `Spends tokens of an entity on a resource and, where the entity cascades, of its parents: all
or none. Prints the state of every limit that was checked. Exit code 3 means refused.`,
		Example: "  weir acquire key-alice gpt-4 rpm=1 tpm=500",
		With:    []any{&r.InCell},
	}, func(ctx context.Context, q *api.Demand) error {
		return r.Call(api.Acquire.Op, func(c api.Caller) error {
			d, _, err := api.Acquire.Call(ctx, c, q)
			return decided(r, d, err)
		})
	})
}

// AdjustCmd returns the command that corrects what was spent.
func AdjustCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "adjust ENTITY RESOURCE LIMIT=AMOUNT...", Short: "Correct what was spent, without a lease",
		Long: `Debits positive amounts and gives negative ones back, of an entity on a resource and, where the
entity cascades, of its parents. Limits may go into debt, which holds later requests back. Nothing
proves that what is given back was ever spent. Prints what is left. A server's token needs the
permission adjust, and to give back also return.`,
		Example: "  weir adjust key-alice gpt-4 tpm=+1230 --id request-81\n  weir adjust key-alice gpt-4 tpm=-400",
		With:    []any{&r.InCell},
	}, func(ctx context.Context, q *api.Adjustment) error {
		return r.Call(api.Adjust.Op, func(c api.Caller) error {
			a, _, err := api.Adjust.Call(ctx, c, q)
			if err != nil {
				return err
			}
			return r.Print(a, func() { balanceColumns(r, a.Limits, true) })
		})
	})
}

var balanceColumns = kit.Columns([]kit.Column[api.Balance]{
	{Name: "entity"},
	{Name: "limit"},
	{Name: "available"},
	{Name: "retry in", Of: func(b *api.Balance) any { return time.Duration(b.RetryAfter) }},
})

// patience is a demand that waits.
type patience struct {
	api.Demand
	Timeout time.Duration `json:"timeout"`
}

// WaitCmd returns the command that spends tokens as soon as it may.
func WaitCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "wait ENTITY RESOURCE LIMIT=AMOUNT...", Short: "Spend tokens as soon as the limits allow it",
		Long: `Waits until the limits allow the request, then spends the tokens. If it would have to wait
longer than --timeout, it fails at once with exit code 3.`,
		Example: "  weir wait key-alice gpt-4 rpm=1 --timeout 30s && call-the-model",
		With:    []any{&r.InCell},
	}, func(ctx context.Context, q *patience) error {
		return r.Call(api.Acquire.Op, func(c api.Caller) error {
			d, err := wait(ctx, c, q)
			return decided(r, d, err)
		})
	})
}

// wait tries until no limit refuses: at least every second, because limits may be raised and tokens given back. The
// timeout also ends a call that is not answered.
func wait(ctx context.Context, c api.Caller, q *patience) (api.Decision, error) {
	within := ctx
	if q.Timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, q.Timeout)
		defer cancel()
	}
	late := kit.WithCode(fmt.Errorf("no answer within the timeout of %s", q.Timeout), kit.Refused)
	for {
		d, _, err := api.Acquire.Call(within, c, &q.Demand)
		var over *weir.ExceededError
		switch {
		case errors.Is(err, context.DeadlineExceeded) && within.Err() != nil && ctx.Err() == nil:
			return d, late
		case !errors.As(err, &over):
			return d, err
		}
		if late = err; over.RetryAfter < math.MaxInt64 {
			late = fmt.Errorf("%w, after the deadline", err)
		}
		if deadline, ok := within.Deadline(); ok && time.Now().Add(over.RetryAfter).After(deadline) {
			return d, late
		}
		if !sleep(within, min(over.RetryAfter, time.Second)) {
			if ctx.Err() != nil {
				return d, ctx.Err()
			}
			return d, late
		}
	}
}

// availability shows what an entity could spend, as printed.
type availability struct {
	At         time.Time    `json:"at"`
	Limits     []api.Status `json:"limits"`
	Fits       *bool        `json:"fits,omitempty"` // only if amounts were given
	RetryAfter *api.Seconds `json:"retry_after,omitempty"`
}

// AvailableCmd returns the command that shows what can be spent.
func AvailableCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "available ENTITY RESOURCE [LIMIT=AMOUNT...]", Short: "Show what can be spent now, without spending it",
		Long: `Shows what an entity could spend on a resource now, without spending or writing anything.
If amounts are given, it also says whether they would fit, and exits with 3 if not.`,
		Example: "  weir available key-alice gpt-4\n  weir available key-alice gpt-4 tpm=5000",
		Omit:    []string{"limits", "on_unavailable"},
	}, func(ctx context.Context, q *api.Question) error {
		return r.Call(api.Explain.Op, func(c api.Caller) error {
			x, _, err := api.Explain.Call(ctx, c, q)
			if err != nil {
				return err
			}
			return showAvailable(r, x)
		})
	})
}

func showAvailable(r *kit.Run, x *api.Explanation) error {
	refused := x.Err()
	if refused != nil && x.Outcome != api.Refused {
		return refused // it can never pass, whatever is left
	}
	view := availability{At: x.At, Limits: x.Statuses()}
	if len(x.Tokens) > 0 {
		view.Fits, view.RetryAfter = new(refused == nil), &x.RetryAfter
	}
	err := r.Print(view, func() {
		printStatuses(r, view.At, view.Limits, false)
		switch {
		case view.Fits == nil:
		case *view.Fits:
			r.Out.Println(r.Out.Good("fits"))
		default:
			r.Out.Println(r.Out.Bad("does not fit")+",", retry(x.RetryAfter))
		}
	})
	if err == nil && refused != nil {
		err = kit.Quiet(refused)
	}
	return err
}

// decided prints a decision or, together with its error, a refusal.
func decided(r *kit.Run, d api.Decision, err error) error {
	if over, ok := errors.AsType[*weir.ExceededError](err); ok {
		d = api.DecisionOf(&over.Decision)
	} else if err != nil {
		return err
	}
	return errors.Join(err, printDecision(r, &d))
}
