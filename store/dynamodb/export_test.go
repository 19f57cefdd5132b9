package dynamodb

// Flush waits for the writes and splits under way.
func (s *Store) Flush() {
	s.writes.Flush()
	s.others.Flush()
	s.writes.Flush()
}

// Remembered returns the number of buckets whose state is remembered.
func (s *Store) Remembered() int {
	s.buckets.mu.Lock()
	defer s.buckets.mu.Unlock()
	return len(s.buckets.m)
}
