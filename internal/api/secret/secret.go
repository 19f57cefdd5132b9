// Package secret keeps keys, tokens and passwords out of everything that is printed or logged, and reads them from
// files that no other user may read.
package secret

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// hidden stands for a secret in outputs.
const hidden = "[redacted]"

// Text is a secret. However it is printed, logged or encoded, it appears as [redacted]. The zero value is none.
type Text struct {
	File string // the file that holds the secret; "" if it was given directly

	text *string // a pointer, because fmt prints the fields of structs that it may not call methods of
}

// New returns a secret, without the line ends that follow it: a file that a secret is made from often has one.
func New(text string) Text {
	if text = strings.TrimRight(text, "\r\n"); text == "" {
		return Text{}
	}
	return Text{text: &text}
}

// Reveal returns the secret itself.
func (t Text) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// Given reports whether there is a secret.
func (t Text) Given() bool { return t.text != nil }

// Load reads the secret from File, if it is set; see [ReadFile].
func (t *Text) Load() error {
	if t.File == "" {
		return nil
	}
	text, err := ReadFile(t.File)
	if err != nil {
		return err
	}
	read := New(string(text))
	if !read.Given() {
		return fmt.Errorf("%s is empty", t.File)
	}
	t.text = read.text
	return nil
}

// UnmarshalText sets the secret.
func (t *Text) UnmarshalText(text []byte) error {
	t.text = New(string(text)).text
	return nil
}

// String returns [redacted], or "" for none.
func (t Text) String() string {
	if t.text == nil {
		return ""
	}
	return hidden
}

// Format writes [redacted], whatever the verb.
func (t Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// MarshalText returns [redacted]. JSON and YAML have the same.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue returns [redacted].
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Env returns the secret in a variable of the environment, or in the file that NAME_FILE names. Both are an error.
func Env(lookup func(string) (string, bool), name string) (Text, error) {
	text, direct := lookup(name)
	file, named := lookup(name + "_FILE")
	switch {
	case direct && named:
		return Text{}, fmt.Errorf("%[1]s and %[1]s_FILE are both set: set only one of them", name)
	case direct:
		return New(text), nil
	}
	t := Text{File: file}
	if err := t.Load(); err != nil {
		return Text{}, fmt.Errorf("%s_FILE: %w", name, err)
	}
	return t, nil
}
