//go:build !race

package raced

// On reports whether the race detector is on, with which everything takes ten times as long.
const On = false
