package record

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/weirlimits/weir/store"
)

// Manifest is a manifest in the catalog: its last revision, and who is applying it.
type Manifest struct {
	Revision int       `json:"revision,omitempty"`
	Hash     string    `json:"hash,omitempty"`
	At       time.Time `json:"at,omitzero"`
	By       string    `json:"by,omitempty"`
	Summary  string    `json:"summary,omitempty"`
	Lock     *Lock     `json:"lock,omitempty"`
	// Managed is the list of the records that the manifest manages; nil if it is not known which they are.
	Managed *ManagedList `json:"managed,omitempty"`
	// Rollout is the state needed to continue or undo a gradual rollout.
	Rollout json.RawMessage `json:"rollout,omitempty"`
}

// ManagedList is where the list of managed records is: in the parts of the text of revision 0. If its hash is not this
// one, it was written and not put to use.
type ManagedList struct {
	Parts int    `json:"parts"`
	Hash  string `json:"hash"`
}

// Lock is held by the process that applies a manifest.
type Lock struct {
	Token string    `json:"token"`
	By    string    `json:"by"`
	Until time.Time `json:"until"`
}

// Revision is one complete application of a manifest; the manifest and the number are in the key.
type Revision struct {
	Hash    string    `json:"hash"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Summary string    `json:"summary"`
	Parts   int       `json:"parts"` // of the compressed text
}

// RevisionText is a part of a revision's text.
type RevisionText struct {
	Gzip []byte `json:"gzip"` // base64
}

// ManifestKey returns the key of a manifest.
func ManifestKey(namespace, name string) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindManifest, ID: name}
}

// RevisionKey returns the key of a revision.
func RevisionKey(namespace, manifest string, revision int) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindRevision, ID: manifest, Sub: fmt.Sprintf("%09d", revision)}
}

// RevisionTextKey returns the key of a part of a revision's text, counted from 0.
func RevisionTextKey(namespace, manifest string, revision, part int) store.Key {
	sub := fmt.Sprintf("%09d.%04d", revision, part)
	return store.Key{Namespace: namespace, Kind: store.KindRevisionText, ID: manifest, Sub: sub}
}

// maxPart is the number of bytes of compressed text in one record; base64 adds a third.
const maxPart = store.MaxValue * 11 / 16

// PackText compresses a text and divides it into parts that fit into one record each.
func PackText(text []byte) (parts []RevisionText) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(text) // into memory
	_ = w.Close()
	for packed.Len() > 0 {
		parts = append(parts, RevisionText{bytes.Clone(packed.Next(maxPart))})
	}
	return parts
}

// UnpackText returns the text of all its parts.
func UnpackText(parts []RevisionText) ([]byte, error) {
	var packed bytes.Buffer
	for _, p := range parts {
		packed.Write(p.Gzip)
	}
	unpack, err := gzip.NewReader(&packed)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unpack)
}
