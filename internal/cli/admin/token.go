package admin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/auth"
)

// newToken describes a token to create.
type newToken struct {
	Name    string        `json:"name" required:"true"`
	Role    []string      `json:"role" required:"true"`
	Expires time.Duration `json:"expires"`
	File    string        `json:"file"`
}

// tokenFile names a token in a file.
type tokenFile struct {
	Name string `json:"name" arg:"NAME"`
	File string `json:"file" required:"true"`
}

// madeToken is a new token as printed. It cannot be shown again.
type madeToken struct {
	Token string     `json:"token"`
	Entry auth.Entry `json:"entry"`
}

var token = kit.Columns([]kit.Column[auth.Entry]{
	{Name: "name", Of: func(e *auth.Entry) any { return e.Name }},
	{Name: "roles", Of: func(e *auth.Entry) any { return rolesText(e.Roles) }},
	{Name: "namespaces", Of: func(e *auth.Entry) any { return e.Namespaces }},
	{Name: "expires", Of: func(e *auth.Entry) any {
		if e.Expires.IsZero() {
			return "never"
		}
		return e.Expires
	}},
})

// TokenCmd returns the commands that manage files of tokens.
func TokenCmd(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "token",
		Short: "Manage the tokens that weir serve --auth requires",
		Long: `Creates, lists and revokes the tokens in a file that weir serve --auth reads. The file holds
only their hashes. A running server picks up changes within a second.`,
	},
		kit.Func(r, kit.Spec{
			Use: "create", Short: "Create a token and print it once",
			Long: `Creates a token and prints it; it cannot be shown again. With --file, the token's entry is
added to that file, which is created if necessary. Without --file, the entry is printed so
that you can add it yourself.

Roles: acquire spends tokens and settles leases; read can read everything; admin changes
limits, entities, buckets and manifests, and includes the other two. A role is valid in the
namespaces that --namespace lists, such as A or A,B. What belongs to no namespace, such as
the namespaces themselves, requires a token for all namespaces: '*'.`,
			Example: `  weir token create --name ci --role acquire --file tokens.yaml
  weir token create --name ops --role admin --namespace '*' --expires 2160h --file tokens.yaml`,
		}, func(_ context.Context, q *newToken) error { return createToken(r, q) }),
		kit.Func(r, kit.Spec{
			Use: "list", Short: "List the tokens in a file",
		}, func(_ context.Context, q *tokenFile) error {
			entries, err := auth.List(q.File)
			if err != nil {
				return err
			}
			return kit.PrintPage(r, entries, "", func() { token(r, entries, true) })
		}),
		kit.Func(
			r, kit.Spec{Use: "revoke NAME", Short: "Remove a token from a file; servers refuse it within a second"},
			func(_ context.Context, q *tokenFile) error {
				err := auth.Revoke(q.File, q.Name)
				if errors.Is(err, auth.ErrNoToken) {
					return kit.WithCode(err, kit.NotFound)
				}
				if err != nil {
					return err
				}
				return r.Print(map[string]string{"revoked": q.Name}, func() { r.Out.Printf("revoked %s\n", q.Name) })
			}))
}

func createToken(a *kit.Run, q *newToken) error {
	if q.Expires < 0 {
		return kit.Usage(errors.New("--expires must be positive"))
	}
	var until time.Time
	if q.Expires > 0 {
		until = time.Now().Add(q.Expires).UTC().Truncate(time.Second)
	}
	var roles []auth.Role
	for _, name := range kit.Words(q.Role) {
		roles = append(roles, auth.Role(name))
	}
	token, entry, err := auth.NewEntry(q.Name, roles, strings.Split(a.Namespace, ","), until)
	if err != nil {
		return kit.Usage(err)
	}
	if q.File != "" {
		if err := auth.Add(q.File, entry); err != nil {
			return err
		}
	}
	return a.Print(madeToken{token, entry}, func() {
		a.Out.Println(token)
		if q.File == "" {
			text, _ := yaml.Marshal([]auth.Entry{entry}) // as in a file; it has only texts
			a.Out.Printf("%s", text)
			return
		}
		a.Err.Printf("added %s to %s; the token is not shown again\n", entry.Name, q.File)
	})
}

func rolesText(roles []auth.Role) string {
	all := make([]string, len(roles))
	for i, r := range roles {
		all[i] = string(r)
	}
	return strings.Join(all, ", ")
}
