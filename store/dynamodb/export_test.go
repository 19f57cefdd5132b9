package dynamodb

// Flush waits for the writes and splits under way.
func (s *Store) Flush() {
	s.fleet.Flush()
	s.finishing.Wait()
}

// Remembered returns the number of buckets whose state is remembered.
func (s *Store) Remembered() int {
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	return len(s.memories.m)
}
