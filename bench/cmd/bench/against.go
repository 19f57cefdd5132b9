package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weirlimits/weir/bench/internal/harness"
)

// unlike is the factor by which a ratio differs from the recorded one when the comparison marks it: short runs on a
// busy machine differ by less.
const unlike = 1.3

// ratios reads the ratios of weir's processor time to that of its peers from a page that holds the table of
// [writePart], by row and peer.
func ratios(page io.Reader) (map[[2]string]float64, error) {
	out, row := make(map[[2]string]float64), ""
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		cells := strings.Split(lines.Text(), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 12 || cells[0] != "" {
			continue
		}
		if cells[1] != "" {
			row = cells[1]
		}
		if cpu, err := strconv.ParseFloat(strings.TrimSuffix(cells[9], " ×"), 64); err == nil {
			out[[2]string{row, cells[2]}] = cpu
		}
	}
	return out, lines.Err()
}

// compare prints the ratios of processor time beside the recorded ones, and returns how many are worse.
func compare(out io.Writer, results []result, was map[[2]string]float64) (worse int) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "processor time of weir\tthan\trecorded\tnow\t")
	for _, r := range results {
		for i := 1; i < len(r.Contenders); i++ {
			before, ok := was[[2]string{r.row.name, r.Contenders[i].Name}]
			now := harness.Paired(r.Each(0, cpuOf), r.Each(i, cpuOf))
			if !ok || before == 0 || now == 0 {
				continue
			}
			mark := ""
			switch {
			case now > unlike*before:
				mark = "WORSE"
				worse++
			case now*unlike < before:
				mark = "better"
			}
			fmt.Fprintf(w, "%s\t%s\t%.2f ×\t%.2f ×\t%s\n", r.row.name, r.Contenders[i].Name, before, now, mark)
		}
	}
	_ = w.Flush()
	return worse
}
