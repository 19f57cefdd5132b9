package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/weirlimits/weir"
)

// Format is the format of a log's lines.
type Format string

// The formats. Auto reads a line that begins with a brace as JSON.
const (
	Auto     Format = "auto"
	Combined Format = "combined" // Apache's and nginx's combined or common, optionally with the virtual host in front
	JSON     Format = "json"     // one object per line
)

// ReadConfig defines what to take from each line.
type ReadConfig struct {
	Format Format // default: Auto
	// Entity is the field that names the client: client, user, host, method, path, status, agent and so on, or a key
	// of a JSON line. The default is client.
	Entity string
	// Resource is the field that names the resource. By default all lines use the resource "log".
	Resource string
	// Time is the key of the time in a JSON line. The default is time, ts, timestamp or @timestamp.
	Time string
	// Count lists the numeric fields to count, such as bytes. See [Config.Tokens].
	Count []string
	// Held is for how long requests hold slots.
	Held Held
	// Progress is called now and then with the number of bytes read, compressed if the log is.
	Progress func(bytes int64)
}

// anything is the resource of all lines if no field names it.
const anything = "log"

// Log is a log in memory, sorted by time.
type Log struct {
	entries   []entry
	counts    []int64 // len(count) values per entry, by its line
	count     []string
	entities  names
	resources names

	lines, malformed, outOfOrder int
	bad                          []BadLine
}

// entry is the data kept for a line.
type entry struct {
	at               int64 // nanoseconds since 1970
	entity, resource uint32
	line             uint32 // among the readable lines
	held             uint32 // milliseconds
}

// BadLine is a line that could not be read, and why.
type BadLine struct {
	Line   int    `json:"line"` // from 1
	Reason string `json:"reason"`
}

const (
	maxBad  = 5       // maximum bad lines kept
	maxLine = 1 << 20 // maximum bytes per line
)

// reader is the state of one Read.
type reader struct {
	cfg      ReadConfig
	log      *Log
	apache   combined
	object   object
	stamp    []byte // of the previous line, and its time: most lines repeat it
	stampAt  int64
	count    []int64
	newest   int64
	entity   int // fields of a combined log; -1: no such field
	resource int
	counted  []int
}

// Read reads a log, plain or gzipped. It counts and skips lines that it cannot read. It fails if src, ctx or the
// configuration does, or if no line can be read.
func Read(ctx context.Context, src io.Reader, cfg ReadConfig) (*Log, error) {
	cfg.Format = cmp.Or(cfg.Format, Auto)
	cfg.Entity = cmp.Or(cfg.Entity, "client")
	cfg.Time = cmp.Or(cfg.Time, "time")
	r := &reader{
		cfg: cfg, object: make(object), log: &Log{count: cfg.Count, bad: []BadLine{}}, newest: math.MinInt64,
		count: make([]int64, len(cfg.Count)),
	}
	if err := r.resolve(); err != nil {
		return nil, err
	}
	if cfg.Progress != nil {
		src = &meter{src: src, read: cfg.Progress}
	}
	if cfg.Resource == "" {
		_, _ = r.log.resources.intern([]byte(anything))
	}
	lines, err := unzipped(src)
	if err != nil {
		return nil, err
	}
	if err := r.readAll(ctx, lines); err != nil {
		return nil, err
	}
	return r.log, r.finish()
}

// resolve finds the fields of a combined log. In Auto, a missing field is reported per line, because JSON lines may
// have it.
func (r *reader) resolve() error {
	r.entity, r.resource = fieldOf(r.cfg.Entity), fieldOf(r.cfg.Resource)
	for _, name := range r.cfg.Count {
		r.counted = append(r.counted, fieldOf(name))
	}
	switch r.cfg.Format {
	case Auto, JSON:
		return nil
	case Combined:
		for _, name := range append([]string{r.cfg.Entity, r.cfg.Resource}, r.cfg.Count...) {
			if name != "" && fieldOf(name) < 0 {
				return &weir.ConfigError{
					Field: "field " + name, Reason: "a combined log has only " + strings.Join(fieldNames, ", "),
				}
			}
		}
		return nil
	}
	return &weir.ConfigError{Field: "format", Reason: fmt.Sprintf("must be auto, combined or json: %q", r.cfg.Format)}
}

func noField(name string) error {
	return fmt.Errorf("is of a combined log, which has no field %q, only %s", name, strings.Join(fieldNames, ", "))
}

// unzipped detects whether the log is compressed.
func unzipped(src io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(src, maxLine)
	if magic, _ := b.Peek(2); len(magic) < 2 || magic[0] != 0x1f || magic[1] != 0x8b {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("read gzip: %w", err)
	}
	return bufio.NewReaderSize(z, maxLine), nil
}

func (r *reader) readAll(ctx context.Context, lines *bufio.Reader) error {
	for n := 1; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			r.malformed(n, fmt.Errorf("is longer than %d bytes", maxLine))
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
		case len(bytes.TrimSpace(line)) > 0:
			if int64(r.log.lines) > math.MaxUint32-1 {
				return errors.New("the log has more than 4 billion lines: replay parts of it")
			}
			r.log.lines++
			if err := r.read(bytes.TrimRight(line, "\r\n")); err != nil {
				r.malformed(n, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
			r.malformed(n, fmt.Errorf("is where the compressed log is cut short or damaged: %w", err))
			return nil
		case err != nil && line == nil, err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read line %d: %w", n, err)
		}
	}
}

// read extracts the configured fields from one line.
func (r *reader) read(line []byte) (err error) {
	e := entry{line: uint32(len(r.log.entries)), held: uint32(min(r.cfg.Held.Assumed.Milliseconds(), maxHeld))}
	var entity, resource []byte
	if r.cfg.Format == JSON || r.cfg.Format == Auto && line[0] == '{' {
		entity, resource, err = r.readJSON(line, &e)
	} else {
		entity, resource, err = r.readCombined(line, &e)
	}
	if err != nil {
		return err
	}
	if e.entity, err = r.log.entities.intern(entity); err != nil {
		return fmt.Errorf("its %s %w", r.cfg.Entity, err)
	}
	if r.cfg.Resource != "" {
		if e.resource, err = r.log.resources.intern(resource); err != nil {
			return fmt.Errorf("its %s %w", r.cfg.Resource, err)
		}
	}
	if e.at < r.newest {
		r.log.outOfOrder++
	}
	r.newest = max(r.newest, e.at)
	r.log.entries = append(r.log.entries, e)
	r.log.counts = append(r.log.counts, r.count...)
	return nil
}

func (r *reader) readCombined(line []byte, e *entry) (entity, resource []byte, err error) {
	if err := r.apache.parse(line); err != nil {
		return nil, nil, err
	}
	if e.at, err = r.at(r.apache.stamp); err != nil {
		return nil, nil, err
	}
	if entity, err = r.field(r.entity, r.cfg.Entity); err != nil {
		return nil, nil, err
	}
	if r.cfg.Resource != "" {
		if resource, err = r.field(r.resource, r.cfg.Resource); err != nil {
			return nil, nil, err
		}
	}
	for i, f := range r.counted {
		text, err := r.field(f, r.cfg.Count[i])
		if err != nil {
			return nil, nil, err
		}
		if string(text) == "-" {
			text = []byte("0") // of bytes: none
		}
		if r.count[i], err = number(text, r.cfg.Count[i]); err != nil {
			return nil, nil, err
		}
	}
	if r.cfg.Held.Field != "" {
		text, err := r.field(fieldOf(r.cfg.Held.Field), r.cfg.Held.Field)
		if err == nil {
			e.held, err = r.cfg.Held.of(text)
		}
		return entity, resource, err
	}
	return entity, resource, nil
}

func (r *reader) field(f int, name string) ([]byte, error) {
	if f < 0 {
		return nil, noField(name)
	}
	if r.apache.fields[f] == nil {
		return nil, fmt.Errorf("has no %s", name)
	}
	return r.apache.fields[f], nil
}

func (r *reader) readJSON(line []byte, e *entry) (entity, resource []byte, err error) {
	o := r.object
	if err := o.parse(line); err != nil {
		return nil, nil, err
	}
	stamp, err := o.get(r.cfg.Time)
	if err != nil {
		return nil, nil, err
	}
	if e.at, err = r.at(stamp); err != nil {
		return nil, nil, err
	}
	if entity, err = o.get(r.cfg.Entity); err != nil {
		return nil, nil, err
	}
	if r.cfg.Resource != "" {
		if resource, err = o.get(r.cfg.Resource); err != nil {
			return nil, nil, err
		}
	}
	for i, name := range r.cfg.Count {
		text, err := o.get(name)
		if err != nil {
			return nil, nil, err
		}
		if r.count[i], err = number(text, name); err != nil {
			return nil, nil, err
		}
	}
	if r.cfg.Held.Field != "" {
		text, err := o.get(r.cfg.Held.Field)
		if err == nil {
			e.held, err = r.cfg.Held.of(text)
		}
		return entity, resource, err
	}
	return entity, resource, nil
}

func (r *reader) at(stamp []byte) (int64, error) {
	if r.stamp != nil && bytes.Equal(stamp, r.stamp) {
		return r.stampAt, nil
	}
	at, err := parseStamp(string(stamp))
	if err == nil {
		r.stamp, r.stampAt = append(r.stamp[:0], stamp...), at
	}
	return at, err
}

func (r *reader) malformed(line int, why error) {
	r.log.malformed++
	if len(r.log.bad) < maxBad {
		r.log.bad = append(r.log.bad, BadLine{line, why.Error()})
	}
}

// finish sorts the log. Lines with equal times keep their order.
func (r *reader) finish() error {
	l := r.log
	if len(l.entries) == 0 {
		if len(l.bad) > 0 {
			return fmt.Errorf("none of %d lines could be read; line %d %s", l.lines, l.bad[0].Line, l.bad[0].Reason)
		}
		return errors.New("the log is empty")
	}
	slices.SortFunc(l.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.line, b.line))
	})
	return nil
}
