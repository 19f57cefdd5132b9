package metrics

import (
	"sync"
)

// streams are the followers of overviews. The once-a-second goroutine serves them all and waits for none.
type streams struct {
	mu    sync.Mutex
	ended bool
	subs  map[*sub]struct{}
}

// sub follows the overview of a namespace.
type sub struct {
	namespace string
	next      chan []byte // at most one: a slow follower misses some
}

func (s *streams) join(namespace string, most int) *sub {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.subs) >= most {
		return nil
	}
	of := 0
	for su := range s.subs {
		if su.namespace == namespace {
			of++
		}
	}
	if of >= most-most/4 {
		return nil // a quarter is reserved for other namespaces
	}
	if s.subs == nil {
		s.subs = make(map[*sub]struct{})
	}
	su := &sub{namespace, make(chan []byte, 1)}
	s.subs[su] = struct{}{}
	return su
}

func (s *streams) leave(su *sub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, su)
}

// send computes the overview of each followed namespace once, and sends it to its followers.
func (s *streams) send(overview func(namespace string) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := make(map[string][]byte)
	for su := range s.subs {
		if len(su.next) > 0 {
			continue
		}
		b := made[su.namespace]
		if b == nil {
			b = overview(su.namespace)
			made[su.namespace] = b
		}
		su.next <- b // there is room: nobody else sends
	}
}

// end ends all streams.
func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for su := range s.subs {
		close(su.next)
	}
	clear(s.subs)
}

func (s *streams) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs)
}
