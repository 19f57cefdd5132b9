package dynamodb

import "context"

// CheckVersion refuses a table that is not of a layout that this weir knows.
func (s *Store) CheckVersion(ctx context.Context) error { return s.checkVersion(ctx) }
