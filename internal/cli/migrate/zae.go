package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/store"
)

// zaeRequest names a table of zae-limiter.
type zaeRequest struct {
	Table    string `json:"table"`
	Region   string `json:"region"`
	Profile  string `json:"profile"`
	Endpoint string `json:"endpoint"`
	Out      string `json:"out"`
}

func zaeCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "zae-limiter TABLE", Short: "Write a manifest from a table of zae-limiter",
		Long: `Writes a manifest from a DynamoDB table of zae-limiter 0.10 or later: its namespaces, limits
and entities with their parents, as a document for each namespace; with --namespace, for that
one. What weir cannot do in the same way is named in comments and on standard error. The
command reads the whole table once, with eventually consistent reads, and writes nothing to
it. Neither what was spent nor usage nor audit events are imported.`,
		Example: "  weir import zae-limiter ratelimits --region eu-central-1 --out limits.yaml",
	}, func(ctx context.Context, q *zaeRequest) error {
		d := storeurl.DynamoDB{Region: q.Region, Profile: q.Profile, Endpoint: q.Endpoint}
		if q.Endpoint != "" && !d.Local() {
			if err := a.MaySend("an AWS signature", "endpoint"); err != nil {
				return err
			}
		}
		cfg, err := d.AWS(ctx)
		if err != nil {
			return err
		}
		t, err := readZae(ctx, d.Client(cfg), q.Table)
		if err != nil {
			return err
		}
		all, err := t.imports(a)
		if err != nil {
			return err
		}
		return output(a, q.Out, "the zae-limiter table "+q.Table, "", all)
	})
}

// item is an item of a table.
type item map[string]types.AttributeValue

// text returns an attribute of text, or "".
func (it item) text(name string) string {
	if v, ok := it[name].(*types.AttributeValueMemberS); ok {
		return v.Value
	}
	return ""
}

// truth returns an attribute that is true or false.
func (it item) truth(name string) (value, ok bool) {
	v, ok := it[name].(*types.AttributeValueMemberBOOL)
	return ok && v.Value, ok
}

// zaeTable is what a table holds of limits and entities.
type zaeTable struct {
	name  string
	names map[string]string // of the active namespaces, by id
	items map[string][]item // by the id of the namespace
}

// The keys of a table's items. A partition begins with the id of its namespace and a slash.
const (
	zaeRegistry  = "_/SYSTEM#" // the partition of the namespaces' names
	zaeNamespace = "#NAMESPACE#"
	zaeSystem    = "SYSTEM#"
	zaeResource  = "RESOURCE#"
	zaeEntity    = "ENTITY#"
	zaeMeta      = "#META"
	zaeConfig    = "#CONFIG"
	// zaeDefault is the name of the namespace that programs get by default, and its id where a program uses a
	// repository without a namespace.
	zaeDefault = "default"
)

// readZae reads a table.
func readZae(ctx context.Context, client dynamodb.ScanAPIClient, table string) (*zaeTable, error) {
	t := &zaeTable{name: table, names: make(map[string]string), items: make(map[string][]item)}
	filter := "SK = :meta OR begins_with(SK, :config) OR begins_with(SK, :namespace)"
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{
		TableName: &table, FilterExpression: &filter, ExpressionAttributeValues: item{
			":meta":      &types.AttributeValueMemberS{Value: zaeMeta},
			":config":    &types.AttributeValueMemberS{Value: zaeConfig},
			":namespace": &types.AttributeValueMemberS{Value: zaeNamespace},
		},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		var none *types.ResourceNotFoundException
		switch {
		case errors.As(err, &none):
			return nil, fmt.Errorf("table %q: %w", table, weir.ErrNotFound)
		case err != nil:
			return nil, &store.Error{Op: "read", Key: table, Err: err}
		}
		for _, it := range page.Items {
			t.add(it)
		}
	}
	if _, taken := t.items[zaeDefault]; taken && !slices.Contains(slices.Collect(maps.Values(t.names)), zaeDefault) {
		t.names[zaeDefault] = zaeDefault
	}
	if len(t.names) == 0 {
		return nil, fmt.Errorf("table %q has no namespaces of zae-limiter 0.10 or later: %w", table, weir.ErrNotFound)
	}
	return t, nil
}

func (t *zaeTable) add(it item) {
	key, sort := it.text("PK"), it.text("SK")
	if name, ok := strings.CutPrefix(sort, zaeNamespace); ok && key == zaeRegistry {
		t.names[it.text("namespace_id")] = name
		return
	}
	id, _, _ := strings.Cut(key, "/")
	t.items[id] = append(t.items[id], it)
}

// imports returns the manifests of the namespaces that the command works on, in the order of their names. What has no
// name is named in the first.
func (t *zaeTable) imports(a *kit.Run) (all []*imported, err error) {
	byName := func(a, b string) int { return strings.Compare(t.names[a], t.names[b]) }
	ids := slices.SortedFunc(maps.Keys(t.names), byName)
	for _, id := range ids {
		if a.InNamespace(t.names[id]) != nil {
			continue
		}
		m := newZae(t.names[id])
		for _, it := range t.items[id] {
			m.add(it)
		}
		m.finish()
		all = append(all, &m.imported)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("namespace %q of table %q: %w", a.Namespace, t.name, weir.ErrNotFound)
	}
	for _, id := range slices.Sorted(maps.Keys(t.items)) {
		if t.names[id] == "" {
			all[0].differ("left out: %s of namespace id %s, which has no name: it was deleted, or its name is taken",
				kit.Plural(len(t.items[id]), "record"), id)
		}
	}
	return all, nil
}
