package leaseid

// ParsePayload takes apart what was signed.
func ParsePayload(payload []byte) (*Lease, bool) { return parse(payload) }
