// Package open opens any store of weir by its URL, as weir --store does. It links all drivers; a program that uses a
// single kind of store can import its package instead.
package open

import (
	"context"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/store"
)

// Store opens the store at a URL:
//
//	memory:                        the memory of this process
//	disk:./weir-data               a folder, which is created if it does not exist
//	redis://localhost:6379/0       Redis or Valkey; also rediss:, unix:, redis+sentinel:, redis+cluster:
//	dynamodb://weir?region=R       a DynamoDB table, which must exist: weir doctor --create-table creates it
//
// The options of a URL are those of weir's command line; credentials are those of the environment:
// WEIR_REDIS_USERNAME and WEIR_REDIS_PASSWORD, or what the AWS SDK finds. When ctx ends, Store gives up; the store does
// not depend on it. A mistake in the URL matches [store.ErrInvalid].
func Store(ctx context.Context, url string) (store.Store, error) {
	return storeurl.Open(ctx, secret.Address(url), storeurl.How{Create: true})
}
