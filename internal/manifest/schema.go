package manifest

import _ "embed" // schema.json

// Schema is the manifest format as a JSON Schema, for editors. Rules that involve several values, such as no cycles
// of parents, are checked only by the decoder.
//
//go:embed schema.json
var Schema []byte
