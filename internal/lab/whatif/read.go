package whatif

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir/admin"
)

// Read reads windows written by weir usage list, as CSV (--csv) or JSON, or returned by /v1/usage.
func Read(src io.Reader) ([]admin.Usage, error) {
	b := bufio.NewReader(src)
	for {
		c, err := b.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errors.New("read usage: it is empty")
		case err != nil:
			return nil, fmt.Errorf("read usage: %w", err)
		case c == ' ' || c == '\n' || c == '\r' || c == '\t':
			continue
		}
		if err := b.UnreadByte(); err != nil {
			return nil, err
		}
		if c == '{' {
			return readJSON(b)
		}
		return readCSV(b)
	}
}

func readJSON(src io.Reader) ([]admin.Usage, error) {
	var all []admin.Usage
	dec := json.NewDecoder(src)
	for { // pages, one after the other
		var page struct{ Items, Windows []admin.Usage }
		if err := dec.Decode(&page); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read usage: %w", err)
		}
		all = append(append(all, page.Items...), page.Windows...)
	}
	if len(all) == 0 {
		return nil, errors.New("read usage: it has no windows: give what weir usage list -o json prints")
	}
	return all, nil
}

// columns are the required CSV columns.
var columns = []string{
	"start", "entity", "resource", "requests", "refused", "limit", "debited", "returned", "peak", "refused_by",
}

func readCSV(src io.Reader) ([]admin.Usage, error) {
	r := csv.NewReader(src)
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	at := make([]int, len(columns))
	for i, name := range columns {
		if at[i] = slices.Index(head, name); at[i] < 0 {
			return nil, fmt.Errorf(
				"read usage: the first line has no column %q: give what weir usage list --csv prints", name,
			)
		}
	}
	var all []admin.Usage
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read usage: %w", err)
		}
		line, _ := r.FieldPos(0)
		cell := func(i int) string { return row[at[i]] }
		u, l, err := parse(cell)
		if err != nil {
			return nil, fmt.Errorf("read usage: line %d: %w", line, err)
		}
		if n := len(all); n > 0 && all[n-1].Start.Equal(u.Start) && all[n-1].Entity == u.Entity &&
			all[n-1].Resource == u.Resource {
			all[n-1].Limits = append(all[n-1].Limits, l)
			continue
		}
		if l.Limit != "" {
			u.Limits = []admin.LimitUsage{l}
		}
		all = append(all, u)
	}
	if len(all) == 0 {
		return nil, errors.New("read usage: it has no windows")
	}
	return all, nil
}

// layouts are the forms of the start of a window.
var layouts = map[admin.Window]string{
	admin.Hourly: "2006-01-02T15", admin.Daily: time.DateOnly, admin.Monthly: "2006-01",
}

// parse parses a row.
func parse(cell func(int) string) (u admin.Usage, l admin.LimitUsage, err error) {
	text := cell(0)
	for w, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil && len(text) == len(layout) {
			u.Start, u.Window = t, w
		}
	}
	if u.Window == "" {
		return u, l, fmt.Errorf("start %q is no hour, day or month such as 2026-11-21T13", text)
	}
	u.Entity, u.Resource, l.Limit = cell(1), cell(2), cell(5)
	for i, to := range map[int]*int64{
		3: &u.Requests, 4: &u.Refused, 6: &l.Debited, 7: &l.Returned, 8: &l.Peak, 9: &l.Refused,
	} {
		if text := cell(i); text != "" {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil || *to < 0 {
				return u, l, fmt.Errorf("%s %q is no number", columns[i], text)
			}
		}
	}
	return u, l, nil
}
