//go:build race

package stream_test

const raceOn = true
