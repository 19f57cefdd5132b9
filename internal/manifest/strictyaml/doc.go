// Package strictyaml reads YAML strictly: no duplicate or unknown keys, no values of another type than is expected. All
// mistakes in a file are reported at once, each with its place, an excerpt, and a hint what to write instead. The
// formats of manifests and of mappings for Envoy are read with it.
package strictyaml
