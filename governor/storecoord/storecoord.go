// Package storecoord keeps a fleet's records in the catalog of a weir store, which can be any store that all workers
// can reach.
package storecoord

import (
	"fmt"
	"strings"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/internal/fleet/catalog"
	"github.com/weirlimits/weir/store"
)

// New returns a coordinator for a named fleet, in a namespace of its own that is listed nowhere else in the store. It
// is safe for concurrent use. It returns an error if the name is empty or contains anything but letters, digits, ., _
// and -.
func New(c store.Catalog, name string) (governor.Coordinator, error) {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) {
		return nil, fmt.Errorf(
			"store coordinator: the fleet's name %q must consist of letters, digits, ., _ and -", name,
		)
	}
	return catalog.Registry{Catalog: c, Namespace: "governor." + name, Kind: "governor"}, nil
}
