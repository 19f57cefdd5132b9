// Package audit has the commands that show, verify and archive the audit log.
package audit

import (
	"context"
	_ "embed"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
)

var event = kit.Columns([]kit.Column[api.Event]{
	{Name: "at"},
	{Name: "principal"},
	{Name: "source"},
	{Name: "action"},
	{Name: "subject"},
	{Name: "change", Of: change, Cut: true},
})

// auditQuery selects changes in the store or in an archive.
type auditQuery struct {
	api.AuditQuery
	Archive string    `json:"archive"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
}

//go:embed fields.txt
var fields string

var _ = api.Describe("audit", fields)

// Cmd returns the commands that show, verify and archive changes.
func Cmd(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{Use: "audit", Short: "Show, verify and archive who changed what and when"},
		kit.Func(r, kit.Spec{
			Use: "list", Short: "List changes, latest first",
			Long: `Lists the changes in the namespace, latest first: those still in the store or, with --archive,
those in an archive. Reading an archive needs no store.`,
			Example: "  weir audit list --subject system\n  weir audit list --archive s3://weir-archive --from " +
				"2026-08-01 --to 2026-09-01",
		}, func(ctx context.Context, q *auditQuery) error {
			if !q.From.IsZero() || !q.To.IsZero() || q.Archive != "" {
				return listArchived(ctx, r, q)
			}
			return kit.List(ctx, r, api.ListAudit, &q.AuditQuery, event)
		}),
		verifyCmd(r), archiveCmd(r))
}
