package harness

import (
	"fmt"
	"math/rand/v2"
)

// Keys are ids and the order in which workers use them, drawn beforehand so that drawing is not measured.
type Keys struct {
	IDs   []string
	order []uint32
	at    [64]cursor // by worker; more workers share them
}

// cursor fills a cache line, or two that are fetched together, so that workers do not share one.
type cursor struct {
	next int
	_    [120]byte
}

const orders = 1 << 18

func newKeys(n int, pick func(r *rand.Rand) int) *Keys {
	k := &Keys{IDs: make([]string, n), order: make([]uint32, orders)}
	for i := range k.IDs {
		k.IDs[i] = fmt.Sprintf("tenant-%03d/user:%08d", i%1000, i)
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

// Uniform uses n ids equally often.
func Uniform(n int) *Keys { return newKeys(n, func(r *rand.Rand) int { return r.IntN(n) }) }

// Zipf uses a few of n ids often and most of them rarely.
func Zipf(n int, s float64) *Keys {
	var z *rand.Zipf
	return newKeys(n, func(r *rand.Rand) int {
		if z == nil {
			z = rand.NewZipf(r, s, 1, uint64(n-1))
		}
		return int(z.Uint64())
	})
}

// Next returns the index of the next id for a worker.
func (k *Keys) Next(worker int) int {
	c := &k.at[worker%len(k.at)]
	c.next++
	return int(k.order[c.next&(orders-1)])
}

// ID returns the next id for a worker.
func (k *Keys) ID(worker int) string { return k.IDs[k.Next(worker)] }

// Touch uses every key once.
func (k *Keys) Touch(use func(id string) error) error {
	for _, id := range k.IDs {
		if err := use(id); err != nil {
			return err
		}
	}
	return nil
}
