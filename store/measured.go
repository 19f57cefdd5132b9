package store

// Measured is implemented by stores that have measures of their own worth watching.
type Measured interface {
	// Measures returns the current measures of the store. It is cheap, and makes no call outside the process.
	Measures() []Measure
}

// Measure is one figure of a store.
type Measure struct {
	// Name is in lower case with underscores, without a prefix, and ends in the unit: buckets, clock_skew_seconds.
	Name  string
	Help  string // one sentence
	Total bool   // whether it only grows, from when the store was opened
	Value float64
}
