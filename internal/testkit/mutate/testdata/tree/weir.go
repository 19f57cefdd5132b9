// Package weir is small enough to be broken in every way.
package weir

// Fits reports whether a fits into what is left.
func Fits(left, a int) bool {
	return a <= left
}

// Spend is tested by nothing.
func Spend(left, a int) int {
	return left - a
}
