package kit

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/store"
)

// Spec describes a command.
type Spec struct {
	// Use is the name of the command and its arguments, which are members of the request in capitals: "show ID".
	Use, Short, Long, Example string
	// Omit are members of the request that the command does not set. With are pointers to more structs of flags, each
	// shown under its title in Titles, if there are any.
	Omit   []string
	With   []any
	Titles []string
	// Some is the error if no flag is given. "" permits that.
	Some string
	// Asks is what a user must confirm, and Done what the command reports if there is nothing else to show. They name
	// members of the request: "delete entity {id}", or "{children? with its children}" for text that depends on one.
	Asks, Done string
	// Missing is what does not exist if a list of it is empty. "" is for a list that may be empty.
	Missing string
}

// Verb makes a command that calls an operation and shows its response.
func Verb[Q, R any](r *Run, o api.Of[Q, R], s Spec, v View[R]) *cobra.Command {
	return Func(r, s, func(ctx context.Context, q *Q) error {
		return r.Call(o.Op, func(c api.Caller) error {
			resp, found, err := o.Call(ctx, c, q)
			if err != nil {
				return err
			}
			if !found {
				return Did(r, "%s", fill(s.Done, q))
			}
			return Show(r, resp, v)
		})
	})
}

// Lists makes a command that calls an operation and shows all pages of its list, or --max items.
func Lists[Q, T any](r *Run, o api.Of[Q, api.List[T]], s Spec, v View[T]) *cobra.Command {
	return Func(r, s, func(ctx context.Context, q *Q) error {
		all, next, err := Pages(ctx, r, o, q, nil)
		switch {
		case err != nil:
			return err
		case len(all) == 0 && s.Missing != "":
			return WithCode(fmt.Errorf("%s: not found", fill(s.Missing, q)), NotFound)
		}
		return PrintPage(r, all, next, func() { v(r, all, true) })
	})
}

// List shows all pages of a list, or as many items as the request wants.
func List[Q, T any](ctx context.Context, r *Run, o api.Of[Q, api.List[T]], q *Q, v View[T]) error {
	all, next, err := Pages(ctx, r, o, q, nil)
	if err != nil {
		return err
	}
	return PrintPage(r, all, next, func() { v(r, all, true) })
}

// Pages opens the store and reads all pages of a list; see [All].
func Pages[Q, T any](
	ctx context.Context, r *Run, o api.Of[Q, api.List[T]], q *Q, keep func([]T) []T,
) (all []T, next string, err error) {
	err = r.Call(o.Op, func(c api.Caller) error {
		all, next, err = All(ctx, c, o, q, keep)
		return err
	})
	return all, next, err
}

// All reads all pages of a list, or as many items as the request wants. Of each page it takes what keep returns; nil
// keeps all.
func All[Q, T any](
	ctx context.Context, c api.Caller, o api.Of[Q, api.List[T]], q *Q, keep func([]T) []T,
) (all []T, next string, err error) {
	page := any(q).(interface{ Cursor() *api.Page }).Cursor() //nolint:forcetypeassert // all lists have pages
	most, exact := page.Max, keep == nil
	all = []T{} // an empty list in JSON, not null
	for {
		if page.Max = PageSize; most > 0 && exact {
			page.Max = min(PageSize, most-len(all))
		}
		list, _, err := o.Call(ctx, c, q)
		if err != nil {
			return nil, "", err
		}
		items := list.Items
		if keep != nil {
			items = keep(items)
		}
		if most > 0 && len(all)+len(items) > most { // a cursor cannot point into a page: read a smaller one
			exact = true
			continue
		}
		all = append(all, items...)
		page.After, next = list.Next, list.Next
		if next == "" || most > 0 && len(all) >= most {
			return all, next, nil
		}
	}
}

// Func makes a command of a function. Q declares its arguments and flags.
func Func[Q any](r *Run, s Spec, run func(ctx context.Context, q *Q) error) *cobra.Command {
	q := new(Q)
	cmd := &cobra.Command{Use: s.Use, Short: s.Short, Long: s.Long, Example: s.Example}
	b := bind(cmd, q, &s)
	b.complete(r, cmd)
	if s.Asks != "" {
		cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	}
	if len(s.Titles) > 0 {
		cmd.SetUsageFunc(titled)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := b.finish(args); err != nil {
			return err
		}
		if s.Some != "" && !b.given() {
			return Usagef("%s", s.Some)
		}
		if s.Asks != "" {
			yes, _ := cmd.Flags().GetBool("yes")
			if err := Confirm(cmd.Context(), r, yes, "%s", fill(s.Asks, q)); err != nil {
				return err
			}
		}
		r.selected = b.selection(args)
		if r.places["namespace"] != unset {
			r.selected = append(r.selected, "--namespace "+r.Namespace)
		}
		return run(As(cmd.Context()), q)
	}
	return cmd
}

// Show prints one value.
func Show[T any](r *Run, v T, view View[T]) error {
	return r.Print(v, func() { view(r, []T{v}, false) })
}

var blank = regexp.MustCompile(`\{(\w+)(\?[^}]*)?\}`)

// fill replaces {name} by the quoted value of a member of a request, and {name?text} by the text if the member is set,
// in which %q is its value, a resource.
func fill(text string, q any) string {
	fields := api.FieldsOf(typeOf(q))
	return blank.ReplaceAllStringFunc(text, func(part string) string {
		name, more, conditional := strings.Cut(strings.Trim(part, "{}"), "?")
		for _, f := range fields {
			switch {
			case f.Name != name:
			case !conditional:
				return fmt.Sprintf("%q", valueOf(f.Ptr(q)))
			case f.IsZero(q):
				return ""
			case strings.Contains(more, "%q"):
				return strings.ReplaceAll(more, "%q", store.ResourceQuoted(fmt.Sprint(valueOf(f.Ptr(q)))))
			default:
				return more
			}
		}
		return part
	})
}
