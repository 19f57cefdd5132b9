package manifest

import _ "embed" // schema.json

// Schema is the format as a JSON Schema, for editors. What depends on several values at once, such as a cycle of
// parents, only the decoder finds.
//
//go:embed schema.json
var Schema []byte
