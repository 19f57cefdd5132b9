package dynamodb

import (
	"context"

	"github.com/weirlimits/weir/store/dynamodb/internal/schema"
)

// CheckVersion refuses a table whose layout this version of weir does not know.
func (s *Store) CheckVersion(ctx context.Context) error { return schema.CheckVersion(ctx, s.calls) }
