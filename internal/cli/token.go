package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/auth"
	"github.com/weirlimits/weir/internal/term"
)

func (a *app) tokenCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:   "token",
		Short: "The tokens that weir serve --auth asks for",
		Long: `Makes, lists and revokes the tokens of a file that weir serve --auth reads. The file holds
their hashes; a server follows it within a second.`,
	}, a.tokenCreateCmd(), a.tokenListCmd(), a.tokenRevokeCmd())
}

// tokenFlags are the flags of token create.
type tokenFlags struct {
	name, file string
	roles      []string
	expires    time.Duration
}

// madeToken is a new token as it is printed: the one time that it can be seen.
type madeToken struct {
	Token string     `json:"token"`
	Entry auth.Entry `json:"entry"`
}

func (a *app) tokenCreateCmd() *cobra.Command {
	var flags tokenFlags
	cmd := &cobra.Command{
		Use:   "create --name NAME --role ROLE",
		Short: "Make a token, and print it once",
		Long: `Makes a token and prints it: it cannot be seen again. With --file its entry is added to
that file, which is made if there is none; without, the entry is printed, to be added
by hand.

Roles: acquire spends tokens and settles leases; read looks at everything; admin changes
limits, entities, buckets and manifests, and has the other two. A role holds in the
namespace that --namespace names, or namespaces: A,B. What belongs to none, as the
namespaces themselves do, takes a token for all: '*'.`,
		Example: `  weir token create --name ci --role acquire --file tokens.yaml
  weir token create --name ops --role admin --namespace '*' --expires 2160h --file tokens.yaml`,
		Args: args(),
		RunE: func(*cobra.Command, []string) error {
			return a.createToken(&flags)
		},
	}
	cmd.Flags().StringVar(&flags.name, "name", "", "`NAME` of the token, in audits and logs")
	cmd.Flags().StringSliceVar(&flags.roles, "role", nil, "`ROLE`: acquire, read or admin; can be repeated")
	cmd.Flags().DurationVar(&flags.expires, "expires", 0, "`DURATION` after which the token expires; not set: never")
	cmd.Flags().StringVar(&flags.file, "file", "", "`FILE` of tokens to add it to")
	_ = cmd.MarkFlagRequired("name")
	_ = cmd.MarkFlagRequired("role")
	return cmd
}

func (a *app) createToken(flags *tokenFlags) error {
	if flags.expires < 0 {
		return usageError{errors.New("--expires must be positive")}
	}
	var until time.Time
	if flags.expires > 0 {
		until = time.Now().Add(flags.expires).UTC().Truncate(time.Second)
	}
	roles := make([]auth.Role, len(flags.roles))
	for i, r := range flags.roles {
		roles[i] = auth.Role(r)
	}
	token, entry, err := auth.NewEntry(flags.name, roles, strings.Split(a.namespace, ","), until)
	if err != nil {
		return usageError{err}
	}
	if flags.file != "" {
		if err := auth.Add(flags.file, entry); err != nil {
			return err
		}
	}
	return a.print(madeToken{token, entry}, func() {
		a.out.Println(token)
		if flags.file == "" {
			a.out.Printf("%s", entryText(entry))
			return
		}
		a.err.Printf("added %s to %s; the token is not shown again\n", entry.Name, flags.file)
	})
}

// entryText is an entry as it stands in a file.
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

func (a *app) tokenListCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "list --file FILE",
		Short: "List the tokens of a file",
		Args:  args(),
		RunE: func(*cobra.Command, []string) error {
			entries, err := auth.List(file)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"items": entries}, func() {
				t := &term.Table{Header: []string{"NAME", "ROLES", "NAMESPACES", "EXPIRES"}}
				for i := range entries {
					e := &entries[i]
					until := "never"
					if !e.Expires.IsZero() {
						until = instant(e.Expires)
					}
					t.Row(e.Name, rolesText(e.Roles), strings.Join(e.Namespaces, ", "), until)
				}
				a.out.Table(t)
			})
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`FILE` of tokens")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

func (a *app) tokenRevokeCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "revoke NAME --file FILE",
		Short: "Take a token out of a file: servers refuse it within a second",
		Args:  args("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			err := auth.Revoke(file, args[0])
			if errors.Is(err, auth.ErrNoToken) {
				return codeError{err, notFound}
			}
			if err != nil {
				return err
			}
			return a.print(map[string]string{"revoked": args[0]}, func() { a.out.Printf("revoked %s\n", args[0]) })
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`FILE` of tokens")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}
