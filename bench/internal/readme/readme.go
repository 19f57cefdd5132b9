// Package readme copies the figures shown in README from docs/benchmarks.md, so that none is typed by hand.
package readme

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Own is the part of docs/benchmarks.md that cmd/bench writes; cmd/peers writes the others.
const Own = "weir on its own, and against what it is built on"

// pick is a row of the page that README shows under another name. The row's name on the page may have a suffix, such
// as the number of goroutines the machine can run.
type pick struct{ part, row, name string }

var picks = []pick{
	{"In process", "allow, 1 key, 1 goroutine", "`Allow`, one key"},
	{"In process", "allow, 100,000 keys", "`Allow`, 100,000 keys"},
	{"DynamoDB: one caller, sequential", "acquire, 1 limit", "DynamoDB (local engine), one caller"},
	{
		"DynamoDB: one caller, sequential", "acquire, 1 limit, child and parent",
		"DynamoDB (local engine), one caller, child and parent",
	},
	{"DynamoDB: one caller, sequential", "acquire, refused", "DynamoDB (local engine), one caller, refused"},
	{"DynamoDB: throughput", "20 callers, 1 entity", "DynamoDB, 20 callers, one entity"},
	{
		"DynamoDB: throughput", "10 callers, one child each of one parent",
		"DynamoDB, 10 callers, children of one parent",
	},
	{"Redis", "64 callers, 1 key", "Redis, 64 callers, one key"},
	{"Redis", "64 callers, 10,000 keys", "Redis, 64 callers, 10,000 keys"},
	{
		"Envoy's rate limit service", "ShouldRateLimit, 64 callers on 4 connections, 1 user",
		"`ShouldRateLimit`, 64 callers, one user",
	},
	{
		"Envoy's rate limit service", "ShouldRateLimit, 64 callers on 4 connections, 10,000 users",
		"`ShouldRateLimit`, 64 callers, 10,000 users",
	},
	{Own, "bucket: debit", "Debit arithmetic"},
	{Own, "memory: Acquire + Commit, 2 limits, child and parent", "`Acquire` and `Commit`, 2 limits, child and parent"},
	{Own, "memory: per bucket in use, 1 limit, without its key", "Memory per bucket, without its key"},
	{Own, "disk ahead: admitted, 64 callers, 1,000 keys, 10,000/s each", "Disk, `ahead`, 64 callers, 1,000 keys"},
	{
		Own, "disk ahead: admitted, 64 callers, 100,000 keys, Zipf 1.1, 1,000/s each",
		"Disk, `ahead`, 64 callers, 100,000 keys, Zipf",
	},
	{Own, "disk always: admitted, 64 callers, 100,000 keys", "Disk, `always`, 64 callers, 100,000 keys"},
	{Own, "disk interval: admitted, 64 callers, 100,000 keys", "Disk, `interval`, 64 callers, 100,000 keys"},
	{Own, "HTTP: POST /v1/acquire, 2 limits, 64 connections", "`POST /v1/acquire`, 64 raw connections"},
	{Own, "gRPC: Acquire, 2 limits, 64 callers on 4 connections", "gRPC `Acquire`, 64 callers on 4 connections"},
	{Own, "manifest, 10,000 entities × 2, disk: apply", "Applying a manifest of 10,000 entities × 2 resources, disk"},
	{Own, "usage of 100,000 entities, disk: top", "`weir usage top`, 100,000 entities, disk"},
	{Own, "dynamodb: Acquire, 1 caller, p50", "DynamoDB `Acquire`, one caller, p50"},
	{Own, "dynamodb: admitted, 64 callers, 10,000 buckets", "DynamoDB, 64 callers, 10,000 buckets"},
	{Own, "dynamodb: admitted, 1,000 callers, one bucket", "DynamoDB, 1,000 callers, one bucket"},
	{
		Own, "dynamodb: refused, 64 callers, one bucket of 10/min",
		"DynamoDB, 64 callers refused by one bucket of 10/min",
	},
}

// Picked returns the rows of a part that README shows.
func Picked(part string) (rows []string) {
	for _, p := range picks {
		if p.part == part {
			rows = append(rows, p.row)
		}
	}
	return rows
}

// Is reports whether row is the picked one.
func Is(row, picked string) bool { return row == picked || strings.HasPrefix(row, picked+", ") }

const (
	begin = "<!-- Generated from docs/benchmarks.md by make bench-peers: do not edit. -->\n"
	end   = "<!-- End of the generated part. -->\n"
)

// Table returns the table that README shows of the page. A part that the page does not have, because its peers are
// not installed, is left out; a row missing from a part is an error.
func Table(page []byte) ([]byte, error) {
	p := parse(string(page))
	var b bytes.Buffer
	fmt.Fprintf(&b, "Measured %s, on %s. Figures are medians over rounds in which the contenders take\n"+
		"turns; in parentheses is weir's figure divided by theirs. For rates, more is better; for times and sizes, "+
		"less.\n\n",
		p.about["when"], p.about["machine"])
	b.WriteString("| Benchmark | weir | Peers and baselines |\n|---|---|---|\n")
	for _, want := range picks {
		rows, ok := p.parts[want.part]
		if !ok {
			continue
		}
		i := slices.IndexFunc(rows, func(r row) bool { return Is(r.name, want.row) })
		if i < 0 {
			return nil, fmt.Errorf("docs/benchmarks.md has no row %q in %q", want.row, want.part)
		}
		name := want.name + strings.TrimPrefix(rows[i].name, want.row)
		if first := rows[i].contenders[0].name(); !strings.HasPrefix(first, "weir") {
			return nil, fmt.Errorf("docs/benchmarks.md has %s and not weir first in %q", first, want.row)
		}
		var beside []string
		for _, c := range rows[i].contenders[1:] {
			text := c.name() + " " + c.figure()
			if ratio := c["rate ratio"] + c["ratio"]; ratio != "" {
				text += " (" + ratio + ")"
			}
			if share := c["failed"]; share != "" {
				text += ", " + share + " failed"
			}
			beside = append(beside, text)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, rows[i].contenders[0].all(), strings.Join(beside, "; "))
	}
	return b.Bytes(), nil
}

// Replace replaces the table between README's markers.
func Replace(text, table []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, fmt.Errorf("README has no place between %q and %q", begin, end)
	}
	return slices.Concat(before, []byte(begin), table, []byte(end), after), nil
}

// page is docs/benchmarks.md, parsed.
type page struct {
	about map[string]string
	parts map[string][]row
}

type row struct {
	name       string
	contenders []cells
}

// cells holds a contender's cells by column name; the contender's own name is under "".
type cells map[string]string

func (c cells) name() string { return c[""] }

func (c cells) figure() string { return c["rate"] + c["figure"] }

// all returns the figure together with the other measurements of the contender.
func (c cells) all() string {
	text := c.figure()
	if n := c["calls/op"]; n != "" {
		text += ", " + n + " calls/op"
	}
	if n := c["calls"]; n != "" {
		text += ", " + strings.Replace(n, "/", " calls/", 1)
	}
	if n := c["allocs/op"]; n != "" && strings.HasSuffix(text, " ns") {
		text += ", " + n + " allocs/op"
	}
	return text
}

func parse(text string) page {
	p := page{make(map[string]string), make(map[string][]row)}
	part := ""
	var header []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			part, header = title, nil
			continue
		}
		inner, ok := strings.CutPrefix(line, "| ")
		if !ok {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(inner, "|"), "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		switch {
		case part == "" && len(fields) == 2:
			p.about[fields[0]] = fields[1]
		case fields[0] == "benchmark":
			header = fields
		case len(header) == len(fields):
			c := make(cells)
			for i, name := range header[1:] {
				c[name] = fields[i+1]
			}
			if fields[0] != "" {
				p.parts[part] = append(p.parts[part], row{name: fields[0]})
			}
			last := &p.parts[part][len(p.parts[part])-1]
			last.contenders = append(last.contenders, c)
		}
	}
	return p
}
