package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/aws/archive"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/store"
)

// toVerify selects the chains to verify.
type toVerify struct {
	Archive string `json:"archive"`
}

func verifyCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "verify", Short: "Verify that no audit event was changed or removed",
		Long: `Verifies the audit events of all namespaces, including deleted and purged ones: each has the hash of the
one before. An event that was changed, removed or inserted is a fault, and the exit code is 1.

Whoever may write to the store could write all later events again. Keep the printed hashes, or
an archive that nobody can change, to find that, too.`,
		Example: "  weir audit verify\n  weir audit verify --archive s3://weir-archive",
	}, func(ctx context.Context, q *toVerify) error {
		if q.Archive != "" {
			b, err := stores.OpenArchive(ctx, q.Archive)
			if err != nil {
				return err
			}
			ids, err := archive.Namespaces(ctx, b)
			if err == nil && len(ids) == 0 {
				err = fmt.Errorf("archive %s has no events: %w", q.Archive, weir.ErrNotFound)
			}
			if err != nil {
				return err
			}
			names := make(map[string]string) // an archive has none
			for _, id := range ids {
				names[id] = ""
			}
			return verify(r, names, func(id string) (archive.Chain, error) { return archive.VerifyArchive(ctx, b, id) })
		}
		return r.With(stores.Existing, func(*weir.Limiter) error {
			names, err := everyNamespace(ctx, r.Opened)
			if err != nil {
				return err
			}
			return verify(r, names, func(id string) (archive.Chain, error) {
				return archive.VerifyStore(ctx, r.Opened, id)
			})
		})
	})
}

// verified is the chain of a namespace. An archive does not have its name.
type verified struct {
	Name string `json:"name,omitempty"`
	archive.Chain
}

// verify prints the chains of namespaces, given their names by id, and returns an error if one has a fault.
func verify(r *kit.Run, names map[string]string, chain func(id string) (archive.Chain, error)) error {
	all := []verified{}
	faults := 0
	for _, id := range slices.Sorted(maps.Keys(names)) {
		c, err := chain(id)
		if err != nil {
			return err
		}
		if c.Events+c.Unchained+len(c.Faults) > 0 {
			all = append(all, verified{names[id], c})
		}
		faults += len(c.Faults)
	}
	err := r.Print(map[string]any{"items": all}, func() {
		for i := range all {
			all[i].show(r)
		}
		if faults == 0 {
			r.Out.Printf("no faults\n")
		}
	})
	if err == nil && faults > 0 {
		err = fmt.Errorf("the audit log has %s", kit.Plural(faults, "fault"))
	}
	return err
}

func (v *verified) show(r *kit.Run) {
	what := v.Namespace
	switch {
	case v.Namespace == store.Registry:
		what = "changes of namespaces"
	case v.Name != "" && v.Name != v.Namespace:
		what = v.Name + " (" + v.Namespace + ")"
	}
	r.Out.Printf("%s: %s", what, kit.Plural(v.Events, "event"))
	if v.Events > 0 {
		r.Out.Printf(", %d to %d, the last with hash %s", v.First, v.Last, v.Hash)
	}
	if v.Unchained > 0 {
		r.Out.Printf("; %d of earlier versions before the chain", v.Unchained)
	}
	r.Out.Printf("\n")
	for _, f := range v.Faults {
		r.Out.Printf("  %s\n", f)
	}
}
