package stream_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlimits/weir/store"
)

// epoch is the origin of item times.
var epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// synthetic makes the stream of a table whose buckets are debited, split, expired and recreated, with items as described
// in docs/format, and totals what was debited.
type synthetic struct {
	dice    *rand.Rand
	now     time.Time
	shards  [][]events.DynamoDBEventRecord // shards of the stream
	number  int
	buckets []*synBucket
	want    map[synWindow]int64 // debited less returned, in millitokens
	asked   map[synWindow]int64 // requests
	births  int
	splits  int
}

type synBucket struct {
	store.Bucket

	items []*synItem
}

type synItem struct {
	bucket            *synBucket
	shard, shards     int
	id                uint64
	debited, returned int64
	takes, undone     int
	writes            int
	image             map[string]events.DynamoDBAttributeValue
}

type synWindow struct {
	of    store.UsageOf
	id    string
	w     store.Window
	start int64
}

func newSynthetic(seed uint64, buckets int, from time.Time) *synthetic {
	s := &synthetic{
		dice: rand.New(rand.NewPCG(seed, 7)), now: from, shards: make([][]events.DynamoDBEventRecord, 4),
		want: make(map[synWindow]int64), asked: make(map[synWindow]int64),
	}
	for i := range buckets {
		b := &synBucket{Bucket: store.Bucket{Namespace: "n", Entity: fmt.Sprintf("e#%d", i), Resource: "r" + strconv.Itoa(i%3)}}
		b.items = []*synItem{s.born(b, 0, 1)}
		s.buckets = append(s.buckets, b)
	}
	return s
}

func (s *synthetic) born(b *synBucket, shard, shards int) *synItem {
	return &synItem{bucket: b, shard: shard, shards: shards, id: s.dice.Uint64() >> 1}
}

// debits makes n debits spread over a duration.
func (s *synthetic) debits(n int, over time.Duration) {
	step := over / time.Duration(n)
	for range n {
		s.now = s.now.Add(step)
		b := s.buckets[s.dice.IntN(len(s.buckets))]
		it := b.items[s.dice.IntN(len(b.items))]
		switch p := s.dice.IntN(1000); {
		case p < 2 && len(b.items) < 8:
			s.split(it)
		case p < 4 && len(b.items) == 1 && it.image != nil:
			s.emit(it, nil) // the item had expired
			*it = *s.born(b, 0, 1)
			s.births++
		}
		amount := 1 + s.dice.Int64N(50_000)
		it.debited += amount
		it.takes++
		net := int64(1)
		if s.dice.IntN(10) == 0 {
			it.returned += amount / 2
			amount -= amount / 2
		}
		if s.dice.IntN(20) == 0 {
			it.undone++
			net--
		}
		s.emit(it, it.next(s.now))
		s.count(s.want, b, amount)
		s.count(s.asked, b, net)
	}
}

// split gives half of an item's shard to a new item.
func (s *synthetic) split(it *synItem) {
	if it.image == nil {
		return
	}
	child := s.born(it.bucket, it.shard+it.shards, 2*it.shards)
	it.shards *= 2
	s.emit(it, it.next(s.now))
	s.emit(child, child.next(s.now))
	it.bucket.items = append(it.bucket.items, child)
	s.splits++
}

func (it *synItem) next(now time.Time) map[string]events.DynamoDBAttributeValue {
	it.writes++
	number := func(n int64) events.DynamoDBAttributeValue {
		return events.NewNumberAttribute(strconv.FormatInt(n, 10))
	}
	image := map[string]events.DynamoDBAttributeValue{
		"id": number(int64(it.id)), "at": number(int64(now.Sub(epoch))), "wc": number(int64(it.writes)), "e": number(1),
		"s": events.NewStringAttribute("AbCdEfGhIjKl"), "L_tpm": number(int64(now.Sub(epoch)) / 1000),
		"P_tpm": events.NewStringAttribute("100000/100000/60s"), "ttl": number(now.Unix() + 86400),
	}
	if it.takes > 0 {
		image["tc"] = number(int64(it.takes))
	}
	if it.undone > 0 {
		image["uc"] = number(int64(it.undone))
	}
	if it.debited > 0 {
		image["D_tpm"] = number(it.debited)
	}
	if it.returned > 0 {
		image["R_tpm"] = number(it.returned)
	}
	if it.shards > 1 {
		image["sc"] = number(int64(it.shards))
	}
	return image
}

func (s *synthetic) emit(it *synItem, image map[string]events.DynamoDBAttributeValue) {
	pk := "n/BUCKET#e%23" + it.bucket.Entity[2:] + "#" + it.bucket.Resource + "#" + strconv.Itoa(it.shard)
	h := fnv.New32a()
	h.Write([]byte(pk))
	s.number++
	r := events.DynamoDBEventRecord{EventName: "MODIFY", Change: events.DynamoDBStreamRecord{
		SequenceNumber: fmt.Sprintf("%021d", s.number), ApproximateCreationDateTime: events.SecondsEpochTime{Time: s.now.Truncate(time.Second)},
		Keys:     map[string]events.DynamoDBAttributeValue{"PK": events.NewStringAttribute(pk), "SK": events.NewStringAttribute("#STATE")},
		OldImage: it.image, NewImage: image,
	}}
	it.image = image
	at := h.Sum32() % uint32(len(s.shards))
	s.shards[at] = append(s.shards[at], r)
}

// count adds a debit to the windows where it belongs.
func (s *synthetic) count(in map[synWindow]int64, b *synBucket, amount int64) {
	day := time.Date(s.now.Year(), s.now.Month(), s.now.Day(), 0, 0, 0, 0, time.UTC)
	for w, start := range map[store.Window]time.Time{
		store.Hourly: s.now.Truncate(time.Hour), store.Daily: day, store.Monthly: day.AddDate(0, 0, 1-day.Day()),
	} {
		for _, k := range []synWindow{
			{store.OfBucket, b.Entity, w, start.Unix()},
			{store.OfResource, b.Resource, w, start.Unix()},
			{store.OfNamespace, "", w, start.Unix()},
			{store.OfStore, "", w, start.Unix()},
		} {
			in[k] += amount
		}
		if b.Entity == "e#0" || b.Entity == "e#1" {
			in[synWindow{store.OfChildren, "team", w, start.Unix()}] += amount
			in[synWindow{store.OfChildren, "org", w, start.Unix()}] += amount
		}
	}
}
