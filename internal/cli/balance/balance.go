// Package balance has the commands that top up balances and show what is left of them.
package balance

import (
	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
)

var balance = kit.Columns([]kit.Column[admin.Balance]{
	{Name: "entity"},
	{Name: "resource"},
	{Name: "balance", Of: func(b *admin.Balance) any {
		if b.Removed {
			return b.Limit + " (removed)"
		}
		return b.Limit
	}},
	{Name: "available"},
	{Name: "credited"},
	{Name: "debited"},
	{Name: "returned"},
})

var credit = kit.Columns([]kit.Column[admin.Credited]{
	{Name: "at"},
	{Name: "id"},
	{Name: "amount"},
	{Name: "available", Of: func(c *admin.Credited) any { return c.Available }},
	{Name: "principal"},
})

// toppedUp prints a balance after a credit.
func toppedUp(r *kit.Run, all []api.ToppedUp, _ bool) {
	for _, b := range all {
		if b.Repeated {
			r.Err.Println("weir: this credit had been made before: nothing was added now")
		}
		balance(r, []admin.Balance{b.Balance}, true)
	}
}

// Cmd returns the command weir balance.
func Cmd(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use: "balance", Short: "Top up balances of prepaid credits, and show what is left",
		Long: `A balance is a limit that spends prepaid credits, such as "weir entity limits set alice --total
-l credits:balance". It belongs to an entity, and lies on the total unless --resource or --group
names something else. It admits what was credited, and no more.`,
	},
		kit.OnGroups(r, kit.Verb(r, api.AddCredits, kit.Spec{
			Use: "add ENTITY LIMIT AMOUNT", Short: "Top up a balance, once for each --id",
			Long: `Adds credits to a balance. The id names what is paid, such as the number of an invoice. It
belongs to this balance and amount for ever: repeated with it, the command adds nothing, so
repeat it if its outcome is unknown. To take credits back, debit them with "weir adjust". A
server's token needs the role credit or admin.`,
			Example: "  weir balance add alice credits 500 --id inv-1042",
		}, toppedUp)),
		kit.OnGroups(r, kit.Lists(r, api.ListBalances, kit.Spec{
			Use: "show ENTITY [LIMIT]", Short: "Show what is left, and the sums of credits, debits and returns",
			Long: `Shows the balances of an entity. What is available is what was credited less what was debited,
plus what was returned. A store may drop a balance that is 0, along with these sums.`,
			Example: "  weir balance show alice\n  weir balance show alice credits",
		}, balance)),
		kit.OnGroups(r, kit.Lists(r, api.ListCredits, kit.Spec{
			Use: "history ENTITY LIMIT", Short: "Show the credits of a balance, newest first",
			Long: `Shows the credits of a balance that the audit log still has, newest first, with what was available
right after each.`,
			Example: "  weir balance history alice credits",
		}, credit)))
}
