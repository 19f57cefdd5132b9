package dynamodb

// Wire returns the number of requests that the store made itself, and the number of their answers that the SDK read.
func (s *Store) Wire() (sent, judged int64) {
	if s.wire == nil {
		return 0, 0
	}
	return s.wire.Made()
}
