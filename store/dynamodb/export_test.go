package dynamodb

// Flush makes the pending returns.
func (s *Store) Flush() { s.fleet.Flush() }

// Remembered returns the number of buckets whose state is remembered.
func (s *Store) Remembered() int {
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	return len(s.memories.m)
}
