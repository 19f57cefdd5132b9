package admin

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/serve/auth"
)

func TokenCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "token",
		Short: "Manage the tokens that weir serve --auth requires",
		Long: `Creates, lists and revokes the tokens in a file that weir serve --auth reads. The file holds
only their hashes. A running server picks up changes within a second.`,
	}, tokenCreateCmd(a), tokenListCmd(a), tokenRevokeCmd(a))
}

// tokenFlags are the flags of token create.
type tokenFlags struct {
	name, file string
	roles      []string
	expires    time.Duration
}

// madeToken is a new token as printed. It cannot be shown again.
type madeToken struct {
	Token string     `json:"token"`
	Entry auth.Entry `json:"entry"`
}

func tokenCreateCmd(a *kit.Run) *cobra.Command {
	var flags tokenFlags
	cmd := &cobra.Command{
		Use:   "create --name NAME --role ROLE",
		Short: "Create a token and print it once",
		Long: `Creates a token and prints it; it cannot be shown again. With --file, the token's entry is
added to that file, which is created if necessary. Without --file, the entry is printed so
that you can add it yourself.

Roles: acquire spends tokens and settles leases; read can read everything; admin changes
limits, entities, buckets and manifests, and includes the other two. A role is valid in the
namespaces that --namespace lists, such as A or A,B. What belongs to no namespace, such as
the namespaces themselves, requires a token for all namespaces: '*'.`,
		Example: `  weir token create --name ci --role acquire --file tokens.yaml
  weir token create --name ops --role admin --namespace '*' --expires 2160h --file tokens.yaml`,
		Args: kit.Args(),
		RunE: func(*cobra.Command, []string) error {
			return createToken(a, &flags)
		},
	}
	cmd.Flags().StringVar(&flags.name, "name", "", "`NAME` of the token in audit events and logs")
	cmd.Flags().StringSliceVar(&flags.roles, "role", nil, "`ROLE` of the token: acquire, read or admin; repeatable")
	cmd.Flags().DurationVar(&flags.expires, "expires", 0, "`DURATION` after which the token expires (default never)")
	cmd.Flags().StringVar(&flags.file, "file", "", "token `FILE` to add the token to")
	_ = cmd.MarkFlagRequired("name")
	_ = cmd.MarkFlagRequired("role")
	return cmd
}

func createToken(a *kit.Run, flags *tokenFlags) error {
	if flags.expires < 0 {
		return kit.Usage(errors.New("--expires must be positive"))
	}
	var until time.Time
	if flags.expires > 0 {
		until = time.Now().Add(flags.expires).UTC().Truncate(time.Second)
	}
	roles := make([]auth.Role, len(flags.roles))
	for i, r := range flags.roles {
		roles[i] = auth.Role(r)
	}
	token, entry, err := auth.NewEntry(flags.name, roles, strings.Split(a.Namespace, ","), until)
	if err != nil {
		return kit.Usage(err)
	}
	if flags.file != "" {
		if err := auth.Add(flags.file, entry); err != nil {
			return err
		}
	}
	return a.Print(madeToken{token, entry}, func() {
		a.Out.Println(token)
		if flags.file == "" {
			a.Out.Printf("%s", entryText(entry))
			return
		}
		a.Err.Printf("added %s to %s; the token is not shown again\n", entry.Name, flags.file)
	})
}

// entryText returns an entry as it is written in a file.
func entryText(e auth.Entry) string {
	text := fmt.Sprintf("- name: %s\n  hash: %s\n  roles: [%s]\n  namespaces: [%s]\n", e.Name, e.Hash, rolesText(e.Roles), quoted(e.Namespaces))
	if !e.Expires.IsZero() {
		text += "  expires: " + e.Expires.Format(time.RFC3339) + "\n"
	}
	return text
}

func quoted(names []string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = "'" + strings.ReplaceAll(n, "'", "''") + "'"
	}
	return strings.Join(all, ", ")
}

func rolesText(roles []auth.Role) string {
	all := make([]string, len(roles))
	for i, r := range roles {
		all[i] = string(r)
	}
	return strings.Join(all, ", ")
}

func tokenListCmd(a *kit.Run) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "list --file FILE",
		Short: "List the tokens in a file",
		Args:  kit.Args(),
		RunE: func(*cobra.Command, []string) error {
			entries, err := auth.List(file)
			if err != nil {
				return err
			}
			return a.Print(map[string]any{"items": entries}, func() {
				t := &term.Table{Header: []string{"NAME", "ROLES", "NAMESPACES", "EXPIRES"}}
				for i := range entries {
					e := &entries[i]
					until := "never"
					if !e.Expires.IsZero() {
						until = kit.Instant(e.Expires)
					}
					t.Row(e.Name, rolesText(e.Roles), strings.Join(e.Namespaces, ", "), until)
				}
				a.Out.Table(t)
			})
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "token `FILE`")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

func tokenRevokeCmd(a *kit.Run) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "revoke NAME --file FILE",
		Short: "Remove a token from a file; servers refuse it within a second",
		Args:  kit.Args("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			err := auth.Revoke(file, args[0])
			if errors.Is(err, auth.ErrNoToken) {
				return kit.WithCode(err, kit.NotFound)
			}
			if err != nil {
				return err
			}
			return a.Print(map[string]string{"revoked": args[0]}, func() { a.Out.Printf("revoked %s\n", args[0]) })
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "token `FILE`")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}
