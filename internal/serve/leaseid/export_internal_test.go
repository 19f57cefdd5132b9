package leaseid

// ParsePayload parses a payload, the signed part of an id.
func ParsePayload(payload []byte) (*Lease, bool) { return parse(payload) }
