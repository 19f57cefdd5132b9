package admission

// Remembered returns how many names are kept.
func (s *Slots) Remembered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holders)
}
