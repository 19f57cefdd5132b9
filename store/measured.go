package store

// Measured is implemented by stores that know something of themselves that is worth watching.
type Measured interface {
	// Measures returns the store's measures as they are now. It is cheap, and makes no call to what is outside the process.
	Measures() []Measure
}

// Measure is one figure of a store.
type Measure struct {
	// Name is in lower case with underscores, without a prefix, with the unit last: buckets, clock_skew_seconds.
	Name  string
	Help  string // one sentence
	Total bool   // it only grows, from when the store was opened
	Value float64
}
