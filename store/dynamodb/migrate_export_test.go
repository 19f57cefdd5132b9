package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store/dynamodb/internal/schema"
)

// Item is an item as migrations see it.
type Item = map[string]types.AttributeValue

// Step is a migration from one version to the next.
type Step struct {
	From, Min uint64
	Change    func(Item) (to Item, by []string, err error)
}

// MigrateBy is [Migrate] with other migrations, to the version that they lead to.
func MigrateBy(ctx context.Context, client Migrator, name string, cfg MigrateConfig, target uint64, steps ...Step) (Migrated, error) {
	var all []schema.Migration
	for _, s := range steps {
		all = append(all, schema.Migration{From: s.From, Min: s.Min, What: "test", Change: s.Change})
	}
	return schema.Migrate(ctx, client, name, cfg, all, target)
}
