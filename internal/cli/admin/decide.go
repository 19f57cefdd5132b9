// Package admin has the commands that decide by hand, configure what is in a store, and look into it.
package admin

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("admin", fields)

// demand is what an entity would spend on a resource.
type demand struct {
	Entity   string      `json:"entity" arg:"ENTITY"`
	Resource string      `json:"resource" arg:"RESOURCE"`
	Tokens   weir.Tokens `json:"tokens" arg:"LIMIT=AMOUNT"`
}

// spending is a demand with what may be set for one request.
type spending struct {
	demand
	Limits        []weir.Limit       `json:"limits" flag:"limit,l"`
	OnUnavailable weir.OnUnavailable `json:"on_unavailable"`
}

func (q *spending) request() weir.Request {
	return weir.Request{
		Entity: q.Entity, Resource: q.Resource, Tokens: q.Tokens, Limits: q.Limits, OnUnavailable: q.OnUnavailable,
	}
}

// AcquireCmd returns the command that spends tokens.
func AcquireCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "acquire ENTITY RESOURCE LIMIT=AMOUNT...", Short: "Spend tokens if the limits allow it",
		Long: `Spends tokens of an entity on a resource and, where the entity cascades, of its parents: all
or none. Prints the state of every limit that was checked. Exit code 3 means refused.`,
		Example: "  weir acquire key-alice gpt-4 rpm=1 tpm=500",
	}, func(ctx context.Context, q *spending) error {
		return r.With(stores.Existing, func(lim *weir.Limiter) error {
			lease, err := lim.Acquire(ctx, q.request())
			return spent(ctx, r, lease, err)
		})
	})
}

// patientSpending is spending that waits.
type patientSpending struct {
	spending
	Timeout time.Duration `json:"timeout"`
}

// WaitCmd returns the command that spends tokens as soon as it may.
func WaitCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "wait ENTITY RESOURCE LIMIT=AMOUNT...", Short: "Spend tokens as soon as the limits allow it",
		Long: `Waits until the limits allow the request, then spends the tokens. If it would have to wait
longer than --timeout, it fails at once with exit code 3.`,
		Example: "  weir wait key-alice gpt-4 rpm=1 --timeout 30s && call-the-model",
	}, func(ctx context.Context, q *patientSpending) error {
		return r.With(stores.Existing, func(lim *weir.Limiter) error {
			within := ctx
			if q.Timeout > 0 {
				var cancel context.CancelFunc
				within, cancel = context.WithTimeout(ctx, q.Timeout)
				defer cancel()
			}
			lease, err := lim.Wait(within, q.request())
			return spent(ctx, r, lease, err)
		})
	})
}

// spent commits a lease and prints its decision, or prints a refusal and returns its error.
func spent(ctx context.Context, r *kit.Run, lease *weir.Lease, err error) error {
	var over *weir.ExceededError
	switch {
	case err == nil:
		return errors.Join(lease.Commit(ctx), printDecision(r, lease.Decision()))
	case errors.As(err, &over):
		if printed := printDecision(r, over.Decision); printed != nil {
			return printed
		}
	}
	return err
}

// availability shows what an entity could spend, as printed.
type availability struct {
	At         string       `json:"at"`
	Limits     []statusView `json:"limits"`
	Fits       *bool        `json:"fits,omitempty"` // only if amounts were given
	RetryAfter *kit.Seconds `json:"retry_after,omitempty"`
}

// AvailableCmd returns the command that shows what can be spent.
func AvailableCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "available ENTITY RESOURCE [LIMIT=AMOUNT...]", Short: "Show what can be spent now, without spending it",
		Long: `Shows what an entity could spend on a resource now, without spending or writing anything.
If amounts are given, it also says whether they would fit, and exits with 3 if not.`,
		Example: "  weir available key-alice gpt-4\n  weir available key-alice gpt-4 tpm=5000",
	}, func(ctx context.Context, q *demand) error {
		return r.With(stores.Existing, func(lim *weir.Limiter) error {
			av, err := lim.Available(ctx, q.Entity, q.Resource)
			if err != nil {
				return err
			}
			return showAvailable(r, &av, q.Tokens)
		})
	})
}

func showAvailable(r *kit.Run, av *weir.Availability, tokens weir.Tokens) error {
	view := availability{At: kit.Instant(av.At), Limits: statusViews(av.Statuses)}
	var retry time.Duration
	if len(tokens) > 0 {
		var err error
		if retry, err = av.RetryAfter(tokens); err != nil {
			return err
		}
		view.Fits, view.RetryAfter = new(retry == 0), new(kit.Seconds(retry))
	}
	err := r.Print(view, func() {
		printStatuses(r, av.Statuses, false)
		switch {
		case view.Fits == nil:
		case *view.Fits:
			r.Out.Println(r.Out.Good("fits"))
		default:
			r.Out.Println(r.Out.Bad("does not fit")+",", "retry in", kit.Span(retry))
		}
	})
	if err == nil && retry > 0 {
		err = kit.Quiet(weir.ErrExceeded)
	}
	return err
}
