// Package migrate has the commands that write manifests from the limits of other limiters.
package migrate

import (
	_ "embed"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("migrate", fields)

// Cmd returns weir import.
func Cmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use: "import", Short: "Write a manifest from the limits of another limiter",
	}, zaeCmd(a), envoyCmd(a))
}

// imported is the manifest of a namespace, and what differs from where it comes from.
type imported struct {
	*manifest.Manifest

	differs []string
}

func (m *imported) differ(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	m.differs = append(m.differs, term.Clean(text))
}

// written is what an import wrote, as printed in JSON.
type written struct {
	Manifest string   `json:"manifest"`
	Mapping  string   `json:"mapping,omitempty"`
	Differs  []string `json:"differs"`
}

// output writes manifests, one document for each, with what differs as comments, to a file or standard output. It
// also writes what differs to standard error.
func output(a *kit.Run, file, from, mapping string, all []*imported) error {
	var text strings.Builder
	w := written{Mapping: mapping, Differs: []string{}}
	for i, m := range all {
		if i > 0 {
			text.WriteString("---\n")
		}
		fmt.Fprintf(&text, "# Imported from %s.\n", term.Clean(from))
		if len(m.differs) > 0 {
			text.WriteString("# What differs from there:\n")
		}
		for _, line := range m.differs {
			line = m.Namespace + ": " + line
			text.WriteString("# - " + line + "\n")
			w.Differs = append(w.Differs, line)
			a.Err.Println("weir: " + line)
		}
		text.Write(m.Text())
	}
	w.Manifest = text.String()
	src := strictyaml.Source{Name: "the imported manifest", Text: []byte(w.Manifest)}
	if _, err := manifest.Decode([]strictyaml.Source{src}, strictyaml.Options{}); err != nil {
		return kit.Mistakes(a, err)
	}
	switch {
	case file != "":
		return os.WriteFile(file, src.Text, 0o600)
	case a.Output == "table":
		_, err := a.Out.W.Write(src.Text)
		return err
	}
	return a.Print(w, nil)
}
