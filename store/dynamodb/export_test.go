package dynamodb

// Flush makes the returns that wait.
func (s *Store) Flush() { s.fleet.Flush() }

// Remembered returns of how many buckets the state is remembered.
func (s *Store) Remembered() int {
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	return len(s.memories.m)
}
