package torture

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"slices"
)

// excerptLength is the largest number of calls in an excerpt.
const excerptLength = 16

// excerpt returns the last calls on the bucket that a failure concerns, up to the moment when it shows. It leaves out
// calls that changed nothing, unless their answers are what is wrong.
func (f *failure) excerpt(records []*Record) (shown []*Record) {
	for _, r := range records {
		_, on := r.of(f.entity)
		if f.entity != "" && !on || f.until > 0 && r.Asked > f.until {
			continue
		}
		if f.check != checkOrder && f.check != checkTime && (r.Result == Refused || r.Op == OpLook || r.Op == OpHold) {
			continue
		}
		if f.check == checkOnce && f.entity == "" && r.Op != OpRelease {
			continue
		}
		shown = append(shown, r)
	}
	slices.SortStableFunc(shown, func(a, b *Record) int { return cmp.Compare(a.Asked, b.Asked) })
	return shown[max(0, len(shown)-excerptLength):]
}

// save writes a round's history, one call per line, to a new file in dir.
func save(dir string, records []*Record) (path string, err error) {
	file, err := os.CreateTemp(dir, "weir-torture-*.jsonl")
	if err != nil {
		return "", err
	}
	enc := json.NewEncoder(file)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return "", errors.Join(err, file.Close())
		}
	}
	return file.Name(), file.Close()
}
