package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/auth"
)

// newToken describes a token to create.
type newToken struct {
	Name       string        `json:"name" required:"true"`
	Role       []string      `json:"role" required:"true" values:"acquire,read,credit,admin"`
	Permission []string      `json:"permission" values:"override,adjust,return,envoy"`
	Namespace  []string      `json:"namespace"`
	Entity     []string      `json:"entity"`
	Resource   []string      `json:"resource"`
	Expires    time.Duration `json:"expires"`
	NoExpiry   bool          `json:"no_expiry"`
	// Certificate makes an entry for a certificate in place of a token.
	Certificate string `json:"certificate"`
	File        string `json:"file"`
}

// tokenFile names a token in a file.
type tokenFile struct {
	Name string `json:"name" arg:"NAME"`
	File string `json:"file" required:"true"`
}

// madeToken is a new token as printed. It cannot be shown again.
type madeToken struct {
	Token string     `json:"token,omitempty"`
	Entry auth.Entry `json:"entry"`
}

var tokenTable = kit.Columns([]kit.Column[auth.Entry]{
	{Name: "name", Of: func(e *auth.Entry) any { return e.Name }},
	{Name: "roles", Of: func(e *auth.Entry) any { return words(e.Roles) }},
	{Name: "permissions", Of: func(e *auth.Entry) any { return words(e.Granted()) }},
	{Name: "namespaces", Of: func(e *auth.Entry) any { return e.Namespaces }},
	{Name: "entities", Of: func(e *auth.Entry) any { return bound(e.Entities) }},
	{Name: "resources", Of: func(e *auth.Entry) any { return bound(e.Resources) }},
	{Name: "expires", Of: func(e *auth.Entry) any {
		switch {
		case e.Expires.IsZero():
			return "never"
		case e.Expired():
			return "expired"
		}
		return e.Expires
	}},
	{Name: "certificate"},
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

Roles: acquire spends tokens and settles leases; read can read everything; credit tops up
balances; admin changes limits, entities, buckets and manifests, and includes the others. A role
is valid in the namespaces that --namespace lists, such as A or A,B. What belongs to no
namespace, such as the namespaces themselves, requires a token for all namespaces: '*'.

Permissions, which no role includes: override, limits in a request; adjust, spending of an
entity without a lease; return, giving back what was taken with no lease, and Envoy's negative
hits beyond what was taken lately; envoy, Envoy's rate limit service.

With --entity or --resource, a token only concerns these: ids, or beginnings of ids that a *
follows. A decision on an entity still charges its parents.`,
			Example: `  weir token create --name ci --role acquire --entity 'team-a/*' --expires 720h --file t.yaml
  weir token create --name edge --role acquire --permission envoy --no-expiry --file t.yaml
  weir token create --name ops --role admin --namespace '*' --expires 2160h --file t.yaml`,
		}, func(_ context.Context, q *newToken) error { return createToken(r, q) }),
		kit.Func(r, kit.Spec{
			Use: "list", Short: "List the tokens in a file",
		}, func(_ context.Context, q *tokenFile) error {
			entries, err := auth.List(q.File)
			if err != nil {
				return err
			}
			for i := range entries {
				if entries[i].Earlier() {
					r.Err.Printf("weir: %s: made by an earlier version: state its permissions\n", entries[i].Name)
				}
			}
			return kit.PrintPage(r, entries, "", func() { tokenTable(r, entries, true) })
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
	switch {
	case q.Expires < 0:
		return kit.Usage(errors.New("--expires must be positive"))
	case (q.Expires > 0) == q.NoExpiry:
		return kit.Usage(errors.New("give either --expires of more than 0, such as 2160h for 90 days, or --no-expiry"))
	}
	var until time.Time
	if q.Expires > 0 {
		until = time.Now().Add(q.Expires).UTC().Truncate(time.Second)
	}
	namespaces := kit.Words(q.Namespace)
	if len(namespaces) == 0 {
		namespaces = []string{a.Namespace} // the default
	}
	token, entry, err := auth.NewEntry(auth.Entry{
		Name: q.Name, Roles: named[auth.Role](q.Role), Permissions: named[auth.Permission](q.Permission),
		Namespaces: namespaces, Entities: q.Entity, Resources: q.Resource, Expires: until,
		Certificate: q.Certificate,
	})
	if err != nil {
		return kit.Usage(err)
	}
	spends := slices.Contains(entry.Roles, auth.Acquire) || slices.Contains(entry.Roles, auth.Admin)
	if !spends && len(entry.Permissions) > 0 {
		return kit.Usage(fmt.Errorf("--permission has no effect with the role %s: add --role acquire", entry.Roles[0]))
	}
	if q.File != "" {
		if err := auth.Add(q.File, entry); err != nil {
			return err
		}
	}
	return a.Print(madeToken{token, entry}, func() {
		if token != "" {
			a.Out.Println(token)
		}
		if q.File == "" {
			text, _ := yaml.Marshal([]auth.Entry{entry}) // as in a file; it has only texts
			a.Out.Printf("%s", text)
			return
		}
		once := "; a token is not shown again"
		if token == "" {
			once = ""
		}
		a.Err.Printf("added %s to %s%s\n", entry.Name, q.File, once)
	})
}

// named returns the words of a flag.
func named[T ~string](flag []string) (all []T) {
	for _, name := range kit.Words(flag) {
		all = append(all, T(name))
	}
	return all
}

// bound returns what a token is bound to.
func bound(ids []string) any {
	if len(ids) == 0 {
		return "all"
	}
	return ids
}

func words[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = string(all[i])
	}
	return strings.Join(texts, ", ")
}
