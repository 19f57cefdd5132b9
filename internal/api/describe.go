package api

import (
	_ "embed"
	"strings"
)

// docs has the description of each member: by package, struct and name, such as "api.Page.max".
var docs = make(map[string]string)

//go:embed fields.txt
var fieldsText string

var _ = Describe("api", fieldsText)

// Describe adds the descriptions of a package's members and returns how many there are. The text has a line with the
// name of each struct and, indented by a tab, a line for each member: its name and what it is; a word in braces names
// its value. Lines that are indented further continue a description. Call it while the package is initialized.
func Describe(pkg, text string) (members int) {
	owner, member := "", ""
	for line := range strings.Lines(text) {
		rest, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "\t")
		switch {
		case rest == "" || strings.HasPrefix(rest, "#"):
		case !indented:
			owner = pkg + "." + rest + "."
		case rest[0] == '\t' || rest[0] == ' ':
			docs[member] += " " + strings.TrimSpace(rest)
		default:
			name, doc, _ := strings.Cut(rest, " ")
			member = owner + name
			docs[member] = strings.TrimSpace(doc)
			members++
		}
	}
	return members
}
