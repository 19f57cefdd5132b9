package cli

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/term"
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

func (a *app) auditCmd() *cobra.Command {
	return group(&cobra.Command{Use: "audit", Short: "Show who changed what and when, and archive it"}, a.auditListCmd(), a.auditArchiveCmd())
}

func (a *app) auditListCmd() *cobra.Command {
	var query weir.AuditQuery
	var page pageFlags
	var old archivedFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List changes, latest first",
		Long: `Lists the changes in the namespace, latest first: those still in the store or, with --archive,
those in an archive. Reading an archive needs no store.`,
		Example: "  weir audit list --subject system\n  weir audit list --archive s3://weir-archive --from 2026-08-01 --to 2026-09-01",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if old.from != "" || old.to != "" || old.archive != "" {
				return a.listArchived(cmd.Context(), &old, &page, query.Subject)
			}
			return a.with(existing, func(lim *weir.Limiter) error {
				found, next, err := collect(&page, func(after string, size int) ([]eventView, string, error) {
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
				return printPage(a, found, next, func() { a.printEvents(found) })
			})
		},
	}
	old.add(cmd)
	cmd.Flags().StringVar(&query.Subject, "subject", "", "list only changes of this `SUBJECT`, such as system")
	return page.add(cmd)
}

func (a *app) printEvents(events []eventView) {
	t := &term.Table{Header: []string{"AT", "PRINCIPAL", "ACTION", "SUBJECT", "BEFORE", "AFTER"}, Cut: []int{4, 5}}
	for _, e := range events {
		t.Row(instant(e.At), e.Principal, e.Action, e.Subject, orNone(e.Before), orNone(e.After))
	}
	a.out.Table(t)
}

func orNone(record json.RawMessage) string {
	if text := string(record); text != "" && text != "null" {
		return text
	}
	return "-"
}
