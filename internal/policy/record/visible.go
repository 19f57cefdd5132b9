package record

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weirlimits/weir/store"
)

// invisible reports whether a character shows nothing of its own, but may change how the text around it is read: one of
// no width, one that turns the direction of writing, or one that separates lines.
func invisible(r rune) bool {
	return r >= utf8.RuneSelf &&
		unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// hidden reports whether Visible escapes a character.
func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) || invisible(r) }

// CheckVisible accepts text without invisible characters, which would make two names look alike.
func CheckVisible(field, text string) error {
	if i := strings.IndexFunc(text, invisible); i >= 0 {
		return Invalid(field, "%s holds a character that cannot be seen", strconv.QuoteToASCII(text))
	}
	return nil
}

// CheckNew is CheckVisible for the ids of the records that writes create. Those that exist, from earlier versions, can
// still be changed and deleted.
func CheckNew(writes []store.Write) error {
	for i := range writes {
		w := &writes[i]
		if w.Record.Version != 0 || w.Check || w.Delete {
			continue
		}
		var err error
		switch key := &w.Record.Key; key.Kind {
		case store.KindEntityLimits:
			if err = CheckVisible("entity", key.ID); err == nil {
				err = CheckVisible("resource", key.Sub)
			}
		case store.KindPlanLimits:
			if err = CheckVisible("plan", key.ID); err == nil {
				err = CheckVisible("resource", key.Sub)
			}
		case store.KindResourceLimits:
			err = CheckVisible("resource", key.ID)
		case store.KindEntity, store.KindNamespace, store.KindManifest:
			err = CheckVisible(string(key.Kind), key.ID)
		default: // named by weir, or by a manifest that exists
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Visible escapes the characters of a text that cannot be seen, that move the cursor, or that turn the direction of
// writing.
func Visible(text string) string {
	return escape(text, hidden, func(r rune) string {
		quoted := strconv.QuoteRuneToASCII(r)
		return quoted[1 : len(quoted)-1]
	})
}

// VisibleJSON is Visible for JSON: what it encodes stays the same.
func VisibleJSON(text []byte) []byte {
	if bytes.IndexFunc(text, hiddenInside) < 0 {
		return text
	}
	return []byte(escape(string(text), hiddenInside, func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	}))
}

// VisibleYAML is Visible for YAML in which texts with such characters have double quotes.
func VisibleYAML(text []byte) []byte {
	return []byte(escape(string(text), hiddenInside, func(r rune) string { return fmt.Sprintf(`\U%08x`, r) }))
}

// hiddenInside is hidden for encoded texts, in which control characters are escaped already, or part of the format.
func hiddenInside(r rune) bool { return r > unicode.MaxASCII && r != utf8.RuneError && hidden(r) }

func escape(text string, which func(rune) bool, as func(rune) string) string {
	if strings.IndexFunc(text, which) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if which(r) {
			b.WriteString(as(r))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
