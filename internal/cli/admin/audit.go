package admin

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

// eventView is an audit event as printed.
type eventView struct {
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`
	Before    json.RawMessage `json:"before"`
	After     json.RawMessage `json:"after"`
}

func AuditCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{Use: "audit", Short: "Show who changed what and when, and archive it"}, auditListCmd(a), auditArchiveCmd(a))
}

func auditListCmd(a *kit.Run) *cobra.Command {
	var query weir.AuditQuery
	var page kit.PageFlags
	var old archivedFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List changes, latest first",
		Long: `Lists the changes in the namespace, latest first: those still in the store or, with --archive,
those in an archive. Reading an archive needs no store.`,
		Example: "  weir audit list --subject system\n  weir audit list --archive s3://weir-archive --from 2026-08-01 --to 2026-09-01",
		Args:    kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if old.from != "" || old.to != "" || old.archive != "" {
				return listArchived(cmd.Context(), a, &old, &page, query.Subject)
			}
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				found, next, err := kit.Collect(&page, func(after string, size int) ([]eventView, string, error) {
					query.After, query.Max = after, size
					page, err := lim.Audit(cmd.Context(), query)
					views := make([]eventView, len(page.Events))
					for i, e := range page.Events {
						views[i] = eventView(e)
					}
					return views, page.Next, err
				})
				if err != nil {
					return err
				}
				return kit.PrintPage(a, found, next, func() { printEvents(a, found) })
			})
		},
	}
	old.add(cmd)
	cmd.Flags().StringVar(&query.Subject, "subject", "", "list only changes of this `SUBJECT`, such as system")
	return page.Add(cmd)
}

func printEvents(a *kit.Run, events []eventView) {
	t := &term.Table{Header: []string{"AT", "PRINCIPAL", "ACTION", "SUBJECT", "BEFORE", "AFTER"}, Cut: []int{4, 5}}
	for _, e := range events {
		t.Row(kit.Instant(e.At), e.Principal, e.Action, e.Subject, orNone(e.Before), orNone(e.After))
	}
	a.Out.Table(t)
}

func orNone(record json.RawMessage) string {
	if text := string(record); text != "" && text != "null" {
		return text
	}
	return "-"
}
