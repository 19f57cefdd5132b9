// Package readme takes the figures that README shows from docs/benchmarks.md, so that none is typed.
package readme

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Own is the part of docs/benchmarks.md that cmd/bench writes; cmd/peers writes the others.
const Own = "By itself, and beside what it stands on"

// pick is a row of the page that README shows, under another name. A row's name may go on behind it, as with how many
// goroutines the machine can run.
type pick struct{ part, row, name string }

var picks = []pick{
	{"In this process", "allow, 1 key, 1 goroutine", "`Allow`, one key"},
	{"In this process", "allow, 100,000 keys", "`Allow`, 100,000 keys"},
	{"DynamoDB: one caller, one thing after another", "acquire, 1 limit", "DynamoDB (a local engine), one caller"},
	{"DynamoDB: one caller, one thing after another", "acquire, 1 limit, child and parent", "the same of a child and its parent"},
	{"DynamoDB: one caller, one thing after another", "acquire, refused", "the same, refused"},
	{"DynamoDB: throughput", "20 callers, 1 entity", "DynamoDB, 20 callers of one entity"},
	{"DynamoDB: throughput", "10 callers, a child each of one parent", "DynamoDB, 10 children of one parent"},
	{"Redis", "64 callers, 1 key", "Redis, 64 callers, one key"},
	{"Redis", "64 callers, 10,000 keys", "Redis, 64 callers, 10,000 keys"},
	{"Envoy's rate limit service", "ShouldRateLimit, 64 callers on 4 connections, 1 user", "`ShouldRateLimit`, 64 callers, one user"},
	{"Envoy's rate limit service", "ShouldRateLimit, 64 callers on 4 connections, 10,000 users", "`ShouldRateLimit`, 64 callers, 10,000 users"},
	{Own, "bucket: debit", "one debit of the arithmetic"},
	{Own, "memory: Acquire + Commit, 2 limits, child and parent", "`Acquire` and `Commit`, 2 limits, child and parent"},
	{Own, "memory: per bucket in use, 1 limit, without its key", "a bucket in memory, beside its key"},
	{Own, "disk ahead: admitted, 64 callers, 1,000 keys, 10,000/s each", "disk, `ahead`, 64 callers, 1,000 keys"},
	{Own, "disk ahead: admitted, 64 callers, 100,000 keys, Zipf 1.1, 1,000/s each", "disk, `ahead`, 64 callers, 100,000 keys, Zipf"},
	{Own, "disk always: admitted, 64 callers, 100,000 keys", "disk, `always`, 64 callers, 100,000 keys"},
	{Own, "disk interval: admitted, 64 callers, 100,000 keys", "disk, `interval`, 64 callers, 100,000 keys"},
	{Own, "HTTP: POST /v1/acquire, 2 limits, 64 connections", "`POST /v1/acquire`, 64 raw connections"},
	{Own, "gRPC: Acquire, 2 limits, 64 callers on 4 connections", "gRPC `Acquire`, 64 callers on 4 connections"},
	{Own, "manifest, 10,000 entities × 2, disk: apply", "a manifest of 10,000 entities × 2 resources applied, disk"},
	{Own, "usage of 100,000 entities, disk: top", "`weir usage top` over 100,000 entities, disk"},
	{Own, "dynamodb: Acquire, 1 caller, p50", "DynamoDB, one caller, p50"},
	{Own, "dynamodb: admitted, 64 callers, 10,000 buckets", "DynamoDB, 64 callers, 10,000 buckets"},
	{Own, "dynamodb: admitted, 1,000 callers, one bucket", "DynamoDB, 1,000 callers, one bucket"},
	{Own, "dynamodb: refused, 64 callers, one bucket of 10/min", "DynamoDB, a bucket of 10/min hammered by 64 callers"},
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

// Is reports whether a row is the one that was picked.
func Is(row, picked string) bool { return row == picked || strings.HasPrefix(row, picked+", ") }

const (
	begin = "<!-- What is measured: made of docs/benchmarks.md by make bench-peers. -->\n"
	end   = "<!-- Until here. -->\n"
)

// Table returns what README shows of the page. A part that the page does not have is left out, as one whose peers are
// not installed; a row that a part does not have is an error.
func Table(page []byte) ([]byte, error) {
	p := parse(string(page))
	var b bytes.Buffer
	fmt.Fprintf(&b, "Measured %s, on %s. Medians over rounds in which all take turns; in brackets weir's figure over theirs:\n"+
		"of rates more is better, of times and sizes less.\n\n", p.about["when"], p.about["machine"])
	b.WriteString("| what | weir | beside |\n|---|---|---|\n")
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
			if ratio := c["weir's rate"] + c["weir is"]; ratio != "" {
				text += " (" + ratio + ")"
			}
			if share := c["failed"]; share != "" {
				text += ", of which " + share + " failed"
			}
			beside = append(beside, text)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, rows[i].contenders[0].all(), strings.Join(beside, "; "))
	}
	return b.Bytes(), nil
}

// Replace puts a table where README has one.
func Replace(text, table []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, fmt.Errorf("README has no place between %q and %q", begin, end)
	}
	return slices.Concat(before, []byte(begin), table, []byte(end), after), nil
}

// page is docs/benchmarks.md as it is read.
type page struct {
	about map[string]string
	parts map[string][]row
}

type row struct {
	name       string
	contenders []cells
}

// cells are a contender's, by the name of the column; the contender's own has none.
type cells map[string]string

func (c cells) name() string { return c[""] }

func (c cells) figure() string { return c["rate"] + c["figure"] }

// all is the figure with what else tells how good it is.
func (c cells) all() string {
	text := c.figure()
	if n := c["calls each"]; n != "" {
		text += ", " + n + " calls each"
	}
	if n := c["calls"]; n != "" {
		text += ", calls " + n
	}
	if n := c["allocs each"]; n != "" && strings.HasSuffix(text, " ns") {
		text += ", " + n + " allocations"
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
		case fields[0] == "what":
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
