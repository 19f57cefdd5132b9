// Package delta compares limits: which values a change of limits changes, and whether it admits more or less. Limits
// are sorted by name.
package delta
