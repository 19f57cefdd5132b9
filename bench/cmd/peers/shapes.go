package main

import (
	"github.com/weirlimits/weir/bench/internal/harness"
)

// A shape is a workload on a DynamoDB table, the same for weir and its peers. zae-limiter gets it as JSON.
type shape struct {
	Op       string `json:"op"` // acquire, adjust, reject or available
	Limits   int    `json:"limits"`
	Entities int    `json:"entities"`
	Workers  int    `json:"workers"`
	Cascade  bool   `json:"cascade"` // each entity also charges one parent
}

// names are the names of a shape's limits, each of a million a minute; amounts are the tokens requested of each.
var (
	names   = []string{"rpm", "tpm", "a", "b", "c"}
	amounts = []int64{1, 100, 1, 1, 1}
)

const (
	partLatency    = "DynamoDB: one caller, sequential"
	partThroughput = "DynamoDB: throughput"
	partMemory     = "In process"
	partRedis      = "Redis"
	partService    = "Envoy's rate limit service"
)

// shapeRows are zae-limiter's own benchmarks, which its users know: its operations one by one, then its throughput.
func shapeRows() []harness.Row {
	rows := []harness.Row{}
	for _, s := range []struct {
		part, name string
		shape      shape
	}{
		{partLatency, "acquire, 1 limit", shape{"acquire", 1, 1, 1, false}},
		{partLatency, "acquire, 2 limits", shape{"acquire", 2, 1, 1, false}},
		{partLatency, "acquire, 5 limits", shape{"acquire", 5, 1, 1, false}},
		{partLatency, "acquire, 1 limit, child and parent", shape{"acquire", 1, 1, 1, true}},
		{partLatency, "acquire, then adjust", shape{"adjust", 1, 1, 1, false}},
		{partLatency, "available, 2 limits", shape{"available", 2, 1, 1, false}},
		{partLatency, "acquire, refused", shape{"reject", 1, 1, 1, false}},
		{partThroughput, "1 caller, 10 entities in turn", shape{"acquire", 1, 10, 1, false}},
		{partThroughput, "1 caller, 10 children of one parent in turn", shape{"acquire", 1, 10, 1, true}},
		{partThroughput, "10 callers, 1 entity", shape{"acquire", 1, 1, 10, false}},
		{partThroughput, "10 callers, one entity each", shape{"acquire", 1, 10, 10, false}},
		{partThroughput, "20 callers, 1 entity", shape{"acquire", 1, 1, 20, false}},
		{partThroughput, "10 callers, one child each of one parent", shape{"acquire", 1, 10, 10, true}},
	} {
		r := harness.Row{Part: s.part, Name: s.name}
		r.Add("weir", weirShape(s.shape))
		r.Add("zae-limiter", zaeShape(s.shape, "threads"))
		if s.shape.Workers > 1 {
			r.Contenders[1].Name = "zae-limiter, threads"
			r.Add("zae-limiter, asyncio", zaeShape(s.shape, "asyncio"))
		}
		if s.shape.Op == "acquire" && s.shape.Limits == 1 && !s.shape.Cascade {
			r.Add("read, then write", readerShape(s.shape))
		}
		rows = append(rows, r)
	}
	return rows
}
