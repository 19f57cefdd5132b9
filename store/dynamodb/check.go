package dynamodb

import (
	"fmt"

	"github.com/weirlimits/weir/store"
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrInvalid, fmt.Sprintf(format, args...))
}
