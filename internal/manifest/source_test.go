package manifest_test

import (
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// A manifest keeps the text of its files, unless that alone does not declare it.
func TestSource(t *testing.T) {
	t.Parallel()
	const blue, green = "# why\nnamespace: blue\nresources: {a: {limits: [rpm:1/min]}}\n", "namespace: green\n"
	const more = "namespace: blue # more\nresources: {b: {limits: [rpm:1/min]}}"
	const vars = "namespace: blue\nvariables: {N: 5}\nresources: {a: {limits: {rpm: {capacity: \"${N}\"}}}}\n"
	for name, test := range map[string]struct {
		files []string
		set   map[string]string
		want  string // "": the shortest form
	}{
		"a file":          {[]string{blue}, nil, blue},
		"two files":       {[]string{blue, more}, nil, blue + "---\n" + more + "\n"},
		"two documents":   {[]string{more + "\n---\n" + blue}, nil, more + "\n---\n" + blue},
		"two manifests":   {[]string{blue + "---\n" + green}, nil, ""},
		"one file shared": {[]string{more, blue + "---\n" + green}, nil, ""},
		"defaults":        {[]string{vars}, nil, vars},
		"set otherwise":   {[]string{vars}, map[string]string{"N": "6"}, ""},
		"set likewise":    {[]string{vars}, map[string]string{"N": "5"}, vars},
		"large":           {[]string{blue + strings.Repeat("# more\n", 100_000)}, nil, ""},
	} {
		var sources []strictyaml.Source
		for i, text := range test.files {
			sources = append(sources, strictyaml.Source{Name: string(rune('a' + i)), Text: []byte(text)})
		}
		ms, err := manifest.Decode(sources, strictyaml.Options{Set: test.set})
		if err != nil {
			t.Fatal(name, err)
		}
		want := test.want
		if want == "" {
			want = string(ms[0].Text())
		}
		if got := string(ms[0].Source()); got != want {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
	}
}
