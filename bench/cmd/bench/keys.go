package main

import (
	"fmt"
	"math/rand/v2"
)

// keys are ids and the order in which workers use them, drawn beforehand so that drawing is not measured.
type keys struct {
	ids   []string
	order []uint32
	at    [64]cursor // by worker
}

// cursor fills a cache line, or two that are fetched together, so that workers do not share one.
type cursor struct {
	next int
	_    [120]byte
}

const orders = 1 << 18

func newKeys(n int, pick func(r *rand.Rand) int) *keys {
	k := &keys{ids: make([]string, n), order: make([]uint32, orders)}
	for i := range k.ids {
		k.ids[i] = fmt.Sprintf("tenant-%03d/user:%08d", i%1000, i)
	}
	r := rand.New(rand.NewPCG(2024, 1))
	for i := range k.order {
		k.order[i] = uint32(pick(r))
	}
	for i := range k.at {
		k.at[i].next = i * (orders / len(k.at))
	}
	return k
}

func uniform(n int) *keys {
	return newKeys(n, func(r *rand.Rand) int { return r.IntN(n) })
}

// zipf uses a few ids often and most of them rarely.
func zipf(n int, s float64) *keys {
	var z *rand.Zipf
	return newKeys(n, func(r *rand.Rand) int {
		if z == nil {
			z = rand.NewZipf(r, s, 1, uint64(n-1))
		}
		return int(z.Uint64())
	})
}

// next returns the index of the next id for a worker.
func (k *keys) next(worker int) int {
	c := &k.at[worker]
	c.next++
	return int(k.order[c.next&(orders-1)])
}

func (k *keys) id(worker int) string { return k.ids[k.next(worker)] }
