package dynamodb

import "context"

// CheckVersion refuses a table whose layout this version of weir does not know.
func (s *Store) CheckVersion(ctx context.Context) error { return s.calls.CheckVersion(ctx) }
