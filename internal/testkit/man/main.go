// Command man writes the manual pages of weir, one for each command, as a tar.gz. The same commands and the same
// SOURCE_DATE_EPOCH, the date in seconds that the pages show, produce the same bytes.
//
//	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) man dist/weir-man.tar.gz
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: man FILE")
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	date := time.Unix(seconds, 0).UTC().Format(time.DateOnly)
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	to := tar.NewWriter(zip)
	if err := errors.Join(pages(cli.Command(), date, to), to.Close(), zip.Close()); err != nil {
		return err
	}
	return os.WriteFile(args[0], b.Bytes(), 0o600)
}

// pages writes the page of a command, and those of the commands below it.
func pages(cmd *cobra.Command, date string, to *tar.Writer) error {
	page := pageOf(cmd, date)
	name := "man1/" + strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	if err := to.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(page))}); err != nil {
		return err
	}
	if _, err := to.Write(page); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			if err := pages(sub, date, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// pageOf returns the page of a command. All text is laid out already, for a terminal.
func pageOf(cmd *cobra.Command, date string) []byte {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 %s weir\n.SH NAME\n%s \\- %s\n", escaped(strings.ToUpper(name)), date, escaped(name),
		escaped(cmd.Short))
	var below, related []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			below = append(below, sub.Name()+"\n\t"+sub.Short)
			related = append(related, name+"-"+sub.Name()+"(1)")
		}
	}
	if cmd.HasParent() {
		related = append(related, strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-")+"(1)")
	}
	for _, part := range []struct{ title, text string }{
		{"SYNOPSIS", cmd.UseLine()},
		{"DESCRIPTION", cmd.Long},
		{"COMMANDS", strings.Join(below, "\n")},
		{"OPTIONS", cmd.NonInheritedFlags().FlagUsagesWrapped(width)},
		{"GLOBAL OPTIONS", cmd.InheritedFlags().FlagUsagesWrapped(width)},
		{"EXAMPLES", cmd.Example},
		{"SEE ALSO", strings.Join(related, "\n")},
	} {
		if part.text != "" {
			fmt.Fprintf(&b, ".SH %q\n.nf\n%s\n.fi\n", part.title, escaped(strings.TrimRight(part.text, "\n")))
		}
	}
	return b.Bytes()
}

// width is what fits beside the margin of a page.
const width = 72

// escaped returns text in which roff finds no commands. A line that begins with a dot or a quote would be one.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	text = strings.NewReplacer("\n.", "\n\\&.", "\n'", "\n\\&'").Replace(text)
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}
