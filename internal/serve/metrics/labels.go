package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// other is the label value of all names beyond the maximum.
const other = "other"

// labels holds the values of a label: the first max names that occur. Each has a number from 1; 0 is other.
type labels struct {
	max   int
	known atomic.Pointer[map[string]int]
	mu    sync.Mutex // held to add a name
	names []string
}

func (l *labels) of(name string) int {
	known := l.known.Load()
	if known != nil {
		if n, ok := (*known)[name]; ok {
			return n
		}
		if len(*known) >= l.max {
			return 0
		}
	}
	return l.add(name)
}

func (l *labels) add(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var known map[string]int
	if p := l.known.Load(); p != nil {
		known = *p
	}
	if n, ok := known[name]; ok {
		return n
	}
	if len(known) >= l.max {
		return 0
	}
	grown := make(map[string]int, len(known)+1)
	maps.Copy(grown, known)
	l.names = append(l.names, name)
	grown[name] = len(l.names)
	l.known.Store(&grown)
	return len(l.names)
}

// name returns the value with number n.
func (l *labels) name(n int) string {
	if n == 0 {
		return other
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[n-1]
}
