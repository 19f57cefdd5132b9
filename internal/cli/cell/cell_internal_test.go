package cell

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// The command names what is wrong: another installation under a cell's name, and what was admitted beyond the limits.
func TestCellTrouble(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	t.Cleanup(func() { _ = st.Close() })
	for key, value := range map[store.Key]string{
		{Namespace: "cells", Kind: "cell", ID: "eu-1"}:                          `{"birth":"b","joined":"2026-01-02T03:04:05Z"}`,
		{Namespace: "cells", Kind: "cell-grants"}:                               `{"epoch":1,"seq":2,"leader":"x","over":{"tenant":2500},"cells":{"eu-1":{"birth":"b","version":{"epoch":1,"seq":1},"shares":{"":232792560},"store":"one","others":2}}}`,
		{Namespace: "cells.eu-1", Kind: "cell-instance", ID: "first"}:           `{"birth":"b","store":"one","seq":1}`,
		{Namespace: "cells.eu-1", Kind: "cell-instance", ID: "another"}:         `{"birth":"b","store":"two","seq":1}`,
		{Namespace: "cells.eu-1", Kind: "cell-instance", ID: "before-the-name"}: `{"birth":"b","seq":1}`,
	} {
		if err := st.Commit(t.Context(), store.Write{Record: store.Record{Key: key, Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	a := kit.New(nil, io.Discard, io.Discard, nil)
	a.Out, a.Output = term.New(&out, nil), "table"
	if err := printCells(t.Context(), a, cells.Registry{Catalog: st}); err != nil {
		t.Fatal(err)
	}
	if err := printShares(t.Context(), a, cells.Registry{Catalog: st}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"eu-1\tactive\t100.0%\t100.0%\t2\t0\n",
		"another installation uses the name eu-1 (processes: 2) and has no share: give it a different name\n",
		"all others\t100.0%\t100.0%\twithin\n", "tenant\t100.0%\t100.0%\t250.0%\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
