package dynamodb

// Wire returns how many requests the store made itself, and how many of their answers the SDK read.
func (s *Store) Wire() (sent, judged int64) {
	if s.wire == nil {
		return 0, 0
	}
	return s.wire.Made()
}
