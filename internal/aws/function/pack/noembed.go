//go:build !weir_embed

package pack

// embedded is nil: this weir builds the package when needed.
var embedded []byte
