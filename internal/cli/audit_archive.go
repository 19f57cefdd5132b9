package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/archive"
	"github.com/weirlimits/weir/internal/archive/s3bucket"
	"github.com/weirlimits/weir/store"
)

// openArchive returns the archive that an address names: s3://BUCKET/PREFIX, file:///FOLDER, or a folder.
func openArchive(ctx context.Context, address string) (archive.Bucket, error) {
	if rest, ok := strings.CutPrefix(address, "s3://"); ok {
		name, prefix, _ := strings.Cut(rest, "/")
		if name == "" {
			return nil, usageError{fmt.Errorf("archive %q names no bucket: write s3://BUCKET/PREFIX", address)}
		}
		cfg, err := awsconfig.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		// Stand-ins for S3 have no names of hosts for buckets.
		return s3bucket.New(s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = o.BaseEndpoint != nil }), name, prefix), nil
	}
	if strings.HasPrefix(address, "file:") {
		u, err := url.Parse(address)
		if err != nil || u.Host != "" || u.Path == "" {
			return nil, usageError{fmt.Errorf("archive %q is not file:///FOLDER", address)}
		}
		return archive.Dir(u.Path), nil
	}
	if scheme, _, ok := strings.Cut(address, "://"); ok || address == "" {
		return nil, usageError{fmt.Errorf("archive %q: unknown scheme %q: use s3://BUCKET/PREFIX or a folder", address, scheme)}
	}
	return archive.Dir(address), nil
}

func (a *app) auditArchiveCmd() *cobra.Command {
	var to, since string
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Write audit events to an archive, before their time in the store is up",
		Long: `Writes the audit events of all namespaces, also of deleted ones, as gzipped lines of JSON, an
object or more for each namespace and day. The store keeps them until their time is up. Run
again, it writes the same objects; --since spares it older days.

On a table with an aggregator the function does this by itself, with events that expire.`,
		Example: "  weir audit archive --to s3://weir-archive --since 48h\n  weir audit archive --to ./archive",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			b, err := openArchive(ctx, to)
			if err != nil {
				return err
			}
			from, err := sinceWhen(since)
			if err != nil {
				return err
			}
			return a.with(existing, func(lim *weir.Limiter) error {
				ids, err := everyNamespace(ctx, lim)
				if err != nil {
					return err
				}
				total := 0
				for _, id := range ids {
					n, err := archive.Live(ctx, a.opened, b, id, from)
					if err != nil {
						return err
					}
					total += n
				}
				return a.print(map[string]any{"events": total, "namespaces": len(ids), "to": to}, func() {
					a.out.Println(fmt.Sprintf("archived %s of %s to %s", plural(total, "event"), plural(len(ids), "namespace"), to))
				})
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`ARCHIVE`: s3://BUCKET/PREFIX or a folder")
	cmd.Flags().StringVar(&since, "since", "", "only events since `TIME`, such as 48h (ago) or 2026-11-21")
	_ = cmd.MarkFlagRequired("to") // the flag exists
	return cmd
}

// sinceWhen reads a time, or how long ago it was.
func sinceWhen(text string) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return time.Now().Add(-ago), nil
	}
	return moment("since", text)
}

// everyNamespace returns the opaque ids of all namespaces, that of the registry among them.
func everyNamespace(ctx context.Context, lim *weir.Limiter) ([]string, error) {
	ids := []string{store.Registry}
	for _, list := range []func(context.Context, weir.NamespaceQuery) (weir.NamespacePage, error){lim.Namespaces, lim.OrphanNamespaces} {
		for after := ""; ; {
			page, err := list(ctx, weir.NamespaceQuery{Deleted: true, After: after, Max: pageSize})
			if err != nil {
				return nil, err
			}
			for _, ns := range page.Namespaces {
				ids = append(ids, ns.ID)
			}
			if after = page.Next; after == "" {
				break
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// archivedFlags say which part of an archive is listed.
type archivedFlags struct{ archive, from, to string }

func (f *archivedFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.archive, "archive", "", "list what is in `ARCHIVE` instead, s3://BUCKET/PREFIX or a folder; --namespace is the namespace's id then")
	cmd.Flags().StringVar(&f.from, "from", "", "of an archive: only changes from `TIME` on, such as 2026-08-01")
	cmd.Flags().StringVar(&f.to, "to", "", "of an archive: only changes before `TIME`")
}

// listArchived lists events of an archive.
func (a *app) listArchived(ctx context.Context, flags *archivedFlags, page *pageFlags, subject string) error {
	if flags.archive == "" {
		return usageError{errors.New("--from and --to are for an archive: add --archive")}
	}
	b, err := openArchive(ctx, flags.archive)
	if err != nil {
		return err
	}
	q := archive.Query{Namespace: a.namespace, Subject: subject, After: page.after, Max: page.max}
	if q.From, err = moment("from", flags.from); err == nil {
		q.To, err = moment("to", flags.to)
	}
	if err != nil {
		return err
	}
	found, err := archive.Read(ctx, b, q)
	if err == nil && len(found) == 0 {
		err = a.checkArchived(ctx, b, flags.archive)
	}
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("archive %s: %w", flags.archive, weir.ErrNotFound)
	}
	if err != nil {
		return err
	}
	views := make([]eventView, len(found))
	for i, e := range found {
		views[i] = eventView(e.AuditEvent)
	}
	next := ""
	if page.max > 0 && len(found) == page.max {
		next = found[len(found)-1].ID
	}
	return printPage(a, views, next, func() { a.printEvents(views) })
}

// checkArchived says which namespaces an archive has where it has nothing of the one that was asked for.
func (a *app) checkArchived(ctx context.Context, b archive.Bucket, address string) error {
	ids, err := archive.Namespaces(ctx, b)
	if err != nil || slices.Contains(ids, a.namespace) {
		return err
	}
	return fmt.Errorf("archive %s has nothing of the namespace with the id %q, but of %s: weir namespace show, or the events of namespace %q, say which id a name has: %w",
		address, a.namespace, strings.Join(ids, ", "), store.Registry, weir.ErrNotFound)
}
