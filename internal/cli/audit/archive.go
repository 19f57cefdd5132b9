package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/aws/archive"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// toArchive configures the archiving of events.
type toArchive struct {
	To    string `json:"to" required:"true"`
	Since string `json:"since"`
}

func archiveCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "archive", Short: "Write audit events to an archive before they expire from the store",
		Long: `Writes the audit events of all namespaces, including deleted and purged ones, as gzipped JSON
lines: one or more objects for each namespace and day. The events stay in the store until they
expire. A repeated run writes the same objects; use --since to skip older days.

If the table has an aggregator function, the function archives events as they expire.`,
		Example: "  weir audit archive --to s3://weir-archive --since 48h\n  weir audit archive --to ./archive",
	}, func(ctx context.Context, q *toArchive) error {
		b, err := stores.OpenArchive(ctx, q.To)
		if err != nil {
			return err
		}
		from, err := sinceWhen(q.Since)
		if err != nil {
			return err
		}
		return r.With(stores.Existing, func(*weir.Limiter) error {
			names, err := everyNamespace(ctx, r.Opened)
			if err != nil {
				return err
			}
			events := 0
			for _, id := range slices.Sorted(maps.Keys(names)) {
				n, err := archive.Live(ctx, r.Opened, b, id, from)
				if err != nil {
					return err
				}
				events += n
			}
			return r.Print(map[string]any{"events": events, "namespaces": len(names), "to": q.To}, func() {
				r.Out.Printf(
					"archived %s of %s to %s\n",
					kit.Plural(events, "event"), kit.Plural(len(names), "namespace"), q.To,
				)
			})
		})
	})
}

// sinceWhen parses a time, or a duration before now.
func sinceWhen(text string) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return time.Now().Add(-ago), nil
	}
	if text == "" {
		return time.Time{}, nil
	}
	return api.ParseTime("since", text)
}

// everyNamespace returns the names of all namespaces, also of deleted and purged ones, by opaque id, and "" for the
// registry.
func everyNamespace(ctx context.Context, from store.Catalog) (names map[string]string, err error) {
	names = map[string]string{store.Registry: "", weir.DefaultNamespace: weir.DefaultNamespace}
	for q := (store.Query{Namespace: store.Registry, Kind: store.KindNamespaceID, Max: 1000}); ; {
		page, err := from.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Records {
			var id record.NamespaceID
			if err := record.Decode(r, &id); err != nil {
				return nil, err
			}
			names[r.Key.ID] = id.Name
		}
		if q.After = page.Next; q.After == "" {
			return names, nil
		}
	}
}

// listArchived lists the events in an archive.
func listArchived(ctx context.Context, a *kit.Run, flags *auditQuery) error {
	if flags.Archive == "" {
		return kit.Usage(errors.New("--from and --to are only for an archive: add --archive"))
	}
	b, err := stores.OpenArchive(ctx, flags.Archive)
	if err != nil {
		return err
	}
	q := archive.Query{
		Namespace: a.Namespace, Subject: flags.Subject, After: flags.After, Max: flags.Max, From: flags.From,
		To: flags.To,
	}
	found, err := archive.Read(ctx, b, q)
	if err == nil && len(found) == 0 {
		err = checkArchived(ctx, a, b, flags.Archive)
	}
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("archive %s: %w", flags.Archive, weir.ErrNotFound)
	}
	if err != nil {
		return err
	}
	views := make([]api.Event, len(found))
	for i, e := range found {
		views[i] = api.Event(e.AuditEvent)
	}
	next := ""
	if flags.Max > 0 && len(found) == flags.Max {
		next = found[len(found)-1].ID
	}
	return kit.PrintPage(a, views, next, func() { event(a, views, true) })
}

// checkArchived returns an error that names the archive's namespaces if the requested one is not among them.
func checkArchived(ctx context.Context, a *kit.Run, b archive.Bucket, address string) error {
	ids, err := archive.Namespaces(ctx, b)
	if err != nil || slices.Contains(ids, a.Namespace) {
		return err
	}
	return fmt.Errorf("archive %s has no events of the namespace with the id %q, only of %s: to find the id of a "+
		"name, use weir namespace show or the events of namespace %q: %w",
		address, a.Namespace, strings.Join(ids, ", "), store.Registry, weir.ErrNotFound)
}
