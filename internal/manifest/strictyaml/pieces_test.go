package strictyaml_test

import (
	"bytes"
	"testing"

	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

func TestPieces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"":                            0,
		"namespace: shop\n":           3,
		"entities: {a: {}, b: {}}":    13,
		`{"entities":{"a":{}}}`:       12,
		"[,,,":                        4,
		`[""""`:                       3,
		"*a *a\t*a\r\n*a":             4,
		"-\u0085-\u2028-\u2029-":      4,
		"\xff\xfe-\x00\x85\x00-\x00":  2, // UTF-16
		"a'b'c \"d e\" # a comment\n": 10,
	} {
		if got := strictyaml.Pieces([]byte(text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// TestPiecesAreEnough checks that a text has no more nodes than pieces, except for keys without a value and empty
// documents.
func TestPiecesAreEnough(t *testing.T) {
	t.Parallel()
	part := rapid.SampledFrom([]string{"a", "[", "]", "{", "}", ",", ":", ": ", " ", "\n", "- ", "? ", `"`, "'", `""`, "&b ", "*b ", "!t ", "|\n", "#", "---\n", "-\u0085", "?\u2028", "\u2029"})
	rapid.Check(t, func(t *rapid.T) {
		var text []byte
		for _, p := range rapid.SliceOfN(part, 0, 40).Draw(t, "parts") {
			text = append(text, p...)
		}
		nodes := 0
		loader, err := yaml.NewLoader(bytes.NewReader(text))
		for err == nil {
			var doc yaml.Node
			if err = loader.Load(&doc); err == nil {
				nodes += nodesOf(&doc) - 2 // the document node, and the null node of an empty document
			}
		}
		if n := strictyaml.Pieces(text); nodes > 2*n+1 {
			t.Fatalf("%q has %d nodes, and %d pieces", text, nodes, n)
		}
	})
}

func nodesOf(n *yaml.Node) int {
	sum := 1
	for _, c := range n.Content {
		sum += nodesOf(c)
	}
	return sum
}
