package replay

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimits/weir"
)

// names numbers distinct texts.
type names struct {
	byText map[string]uint32
	texts  []string
}

// intern returns the number of a text that is a valid ID.
func (n *names) intern(text []byte) (uint32, error) {
	if id, ok := n.byText[string(text)]; ok {
		return id, nil
	}
	if err := checkID(text); err != nil {
		return 0, err
	}
	if n.byText == nil {
		n.byText = make(map[string]uint32)
	}
	id := uint32(len(n.texts))
	n.texts = append(n.texts, string(text))
	n.byText[n.texts[id]] = id
	return id, nil
}

// checkID returns why a limiter would reject a text as an ID, so that one odd line does not end the replay.
func checkID(text []byte) error {
	switch {
	case len(text) == 0:
		return errors.New("is empty")
	case len(text) > 256:
		return fmt.Errorf("has %d bytes, but an id has at most 256", len(text))
	case !utf8.Valid(text):
		return errors.New("is not valid UTF-8")
	}
	switch string(text) {
	case "_default_", "_", "wcu":
		return fmt.Errorf("is %s, which is reserved", text)
	}
	for _, r := range string(text) {
		if unicode.IsControl(r) {
			return errors.New("holds a control character")
		}
	}
	return nil
}

// number parses a field that is counted.
func number(text []byte, name string) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 || n > weir.MaxTokens {
		return 0, fmt.Errorf("field %q is %.40q, not a whole number up to 1e15", name, text)
	}
	return n, nil
}

// meter reports how much was read.
type meter struct {
	src  io.Reader
	n    int64
	read func(int64)
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.src.Read(p)
	m.n += int64(n)
	m.read(m.n)
	return n, err
}
